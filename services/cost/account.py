"""The bill: dollars so far, kept over restarts of the meter."""

from __future__ import annotations

from collections.abc import Mapping

KEEP_EVERY_S = 20.0


class Account:
    """Dollars of a release since it began.

    Args:
        kept: the state that `to_keep` gave once; {} for a new release.
        now: Unix time. While no meter ran the pods ran on, so the gap is charged at the last rate.
    """

    def __init__(self, kept: Mapping[str, str], now: float) -> None:
        self.dollars = float(kept.get("dollars", 0))
        self.rate = float(kept.get("dollarsPerHour", 0))  # US dollars an hour
        self.frames = int(kept.get("frames", 0))  # the learner's, newest known
        self._at = float(kept.get("unixTime", now))
        self._kept_at = 0.0
        self.add(now, self.rate)

    def add(self, now: float, rate: float) -> None:
        """Charge the time since the last call at the rate that held then; `rate` holds from now."""
        self.dollars += max(0.0, now - self._at) / 3600 * self.rate
        self._at, self.rate = now, rate

    def due(self, now: float) -> bool:
        """Whether it should be kept now."""
        return now - self._kept_at >= KEEP_EVERY_S

    def to_keep(self, now: float) -> dict[str, str | None]:
        """What the release's state keeps."""
        self._kept_at = now
        return {
            "dollars": f"{self.dollars:.6f}",
            "dollarsPerHour": f"{self.rate:.6f}",
            "frames": str(self.frames),
            "unixTime": f"{self._at:.3f}",
        }

    @property
    def dollars_per_billion_frames(self) -> float | None:
        """At the bill so far; None before the first frame."""
        return self.dollars / self.frames * 1e9 if self.frames else None
