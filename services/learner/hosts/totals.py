"""Counts of all hosts of a learner, as each of them tells the others."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from seedbed.telemetry import Counters

# Counted by the first host alone, or the same on all.
_OF_THE_FIRST = frozenset({"updates", "skipped_updates", "seconds", "dollars"})
# A host that tells nothing for so long hangs, or its network does, in seconds. It tells its counts
# twice a second.
_SILENT_S = 3.0


class HostTotals:
    """Newest counts of every host. Written by one thread, read by any.

    The first host begins with the counts of the checkpoint and the others with zero, so that the
    sum is the whole learner's.

    Args:
        host: number of this host.
        own: counters of this host.
        now: clock, in seconds.
    """

    def __init__(self, host: int, own: Counters, now: Callable[[], float] = time.monotonic) -> None:
        self._host, self._own, self._now = host, own, now
        # What each other host has told, and when.
        self._told: dict[int, tuple[str, float]] = {}
        self._known: dict[int, dict[str, Any]] = {}

    def learn(self, told: Mapping[int, str]) -> None:
        """Take what the hosts tell.

        Args:
            told: by host, a JSON object with its `counters`, `returns` and `waiting_for`.
        """
        known = dict(self._known)
        for host, text in told.items():
            if host != self._host and self._told.get(host, ("", 0.0))[0] != text:
                self._told[host] = text, self._now()
                known[host] = json.loads(text)
        self._known = known

    def known(self) -> dict[int, dict[str, Any]]:
        """Return what each other host has told last."""
        return self._known

    def total(self) -> Counters:
        """Return the counts of the whole learner."""
        total = Counters()
        total.set_from(self._own.to_json())
        for host, told in self._known.items():
            for field in fields(Counters):
                value = told["counters"][field.name]
                if field.name not in _OF_THE_FIRST:
                    setattr(total, field.name, getattr(total, field.name) + value)
                elif host == 0 and field.name in ("seconds", "dollars"):
                    setattr(total, field.name, value)
        return total

    def others_done(self) -> dict[str, float]:
        """Return the frames that the other hosts have stepped and trained on since they started.

        The counts of a checkpoint are no frames of the last seconds.
        """
        done: dict[str, float] = {}
        for told in self._known.values():
            for name, count in told["done"].items():
                done[name] = done.get(name, 0) + count
        return done

    def mean_return(self, own: Callable[[int], float | None], episodes: int) -> float | None:
        """Return the mean return of the last episodes, an equal share of them from each host.

        Args:
            own: returns this host's mean over its last so many episodes; None if it has fewer.
            episodes: episodes of all hosts together.
        """
        share = self.share(episodes)
        mine = own(share)
        others = [told["returns"] for told in self._known.values()]
        count = share + sum(n for _, n in others)
        if mine is None or count < episodes:
            return None
        return float((share * mine + sum(total for total, _ in others)) / count)

    def returns(self, own: Callable[[int], tuple[float, int]], episodes: int) -> tuple[float, int]:
        """Return the sum and the number of the newest returns of all hosts.

        Args:
            own: returns those of this host, at most so many.
            episodes: episodes of all hosts together.
        """
        told = [own(self.share(episodes)), *(each["returns"] for each in self._known.values())]
        return sum(total for total, _ in told), sum(count for _, count in told)

    def share(self, episodes: int) -> int:
        """Return each host's part of a number of episodes."""
        return -(-episodes // (len(self._known) + 1))

    def describe(self, host: int) -> str:
        """Return what a host does that others wait for, in words."""
        silent_s = self._silent_s(host)
        if silent_s > _SILENT_S:
            return f"host {host}, silent for {silent_s:.0f} s"
        what = self._known.get(host, {}).get("waiting_for")
        return f"host {host} ({what})" if what else f"host {host}"

    def silent(self) -> str:
        """Return the hosts that give no sign of life, in words; "" where all do."""
        silent = [host for host in sorted(self._told) if self._silent_s(host) > _SILENT_S]
        return " and ".join(map(self.describe, silent))

    def _silent_s(self, host: int) -> float:
        told = self._told.get(host)
        return 0.0 if told is None else self._now() - told[1]
