"""Dollars of a release so far, kept over restarts of the meter."""

from collections.abc import Mapping

SAVE_INTERVAL_S = 20.0


class Ledger:
    """Dollars of a release since it began.

    Attributes:
        rate: US dollars an hour.
        frames: Emulator frames of all learners, as last known.
    """

    def __init__(self, state: Mapping[str, str], now: float) -> None:
        """Restore the ledger, and charge the time without a meter at the last rate.

        Args:
            state: The output of `to_state`; {} for a new release.
            now: Unix time.
        """
        self.dollars = float(state.get("dollars", 0))
        self.rate = float(state.get("dollarsPerHour", 0))
        self.frames = int(state.get("frames", 0))
        self._at = float(state.get("unixTime", now))
        self._saved_at = 0.0
        self.charge(now, self.rate)

    def charge(self, now: float, rate: float) -> None:
        """Charge the time since the last call at the rate that held then.

        Args:
            now: Unix time, in seconds.
            rate: US dollars an hour from now on.
        """
        self.dollars += max(0.0, now - self._at) / 3600 * self.rate
        self._at, self.rate = now, rate

    def is_due(self, now: float) -> bool:
        """Return whether the ledger should be saved.

        Args:
            now: Unix time, in seconds.
        """
        return now - self._saved_at >= SAVE_INTERVAL_S

    def to_state(self, now: float) -> dict[str, str | None]:
        """Return the keys that the release's ConfigMap stores.

        Args:
            now: Unix time, in seconds, that counts as the time of the save.
        """
        self._saved_at = now
        return {
            "dollars": f"{self.dollars:.6f}",
            "dollarsPerHour": f"{self.rate:.6f}",
            "frames": str(self.frames),
            "unixTime": f"{self._at:.3f}",
        }

    @property
    def dollars_per_billion_frames(self) -> float | None:
        """Dollars so far by frames so far; None before the first frame."""
        return self.dollars / self.frames * 1e9 if self.frames else None
