"""How each learner is doing, as its beats say; who is alive; and what they have done together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from seedbed.telemetry.counters import Counters


@dataclass(frozen=True)
class PeerStatus:
    """What a learner says of itself; see `gossip.proto`."""

    iteration: int = 0
    updates: int = 0
    env_frames: int = 0
    seconds: float = 0.0
    dollars: float = 0.0
    return_sum: float = 0.0
    return_count: int = 0
    over: str = ""
    waiting: bool = False


class Membership:
    """All learners. Any thread.

    A learner is alive while its iterations go on: one that answers and makes no progress, because
    it has no actors or its machine is stuck, is left out as a dead one is, and taken in again
    with its next iteration. One that waits for a peer, as τ asks, is not dead: its own deadline
    ends that.

    Args:
        deadline_s: without progress, after which a peer counts as dead. Peers have as long to come.
        whole_bill: each learner's dollars are those of all, as a cost meter counts them.
    """

    def __init__(
        self,
        rank: int,
        count: int,
        deadline_s: float,
        whole_bill: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rank, self.count, self.deadline_s = rank, count, deadline_s
        self._whole_bill = whole_bill
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[int, PeerStatus] = {}
        self._heard: set[int] = set()
        self._highest: dict[int, int] = {}
        self._progress = dict.fromkeys(range(count), now())

    def update(self, rank: int, member: PeerStatus) -> None:
        """A beat has come."""
        with self._lock:
            before = self._known.get(rank)
            # Smaller too: it was killed, and goes on from an older checkpoint.
            if before is None or member.waiting or member.iteration != before.iteration:
                self._progress[rank] = self._now()
            self._known[rank] = member
            self._heard.add(rank)
            self._highest[rank] = max(self._highest.get(rank, 0), member.iteration)

    def on_parameters(self, rank: int, iteration: int) -> None:
        """Parameters have come: a message is a sign of life too."""
        with self._lock:
            before = self._known.get(rank, PeerStatus())
            if iteration > before.iteration:
                self._progress[rank] = self._now()
                self._known[rank] = replace(before, iteration=iteration)
            self._highest[rank] = max(self._highest.get(rank, 0), iteration)

    def alive(self) -> frozenset[int]:
        """Ranks that make progress; this learner always counts itself."""
        since = self._now() - self.deadline_s
        with self._lock:
            return frozenset(
                rank for rank, at in self._progress.items() if at > since or rank == self.rank
            )

    def highest_iteration(self, rank: int) -> int:
        """The highest local iteration that was ever heard of a learner. One that has lost all
        counts from 0 again, and may say so before it asks.
        """
        with self._lock:
            return self._highest.get(rank, 0)

    def peers_heard(self) -> dict[int, PeerStatus]:
        """The newest beat of each peer that has said anything to this process."""
        with self._lock:
            return {rank: self._known[rank] for rank in self._heard if rank != self.rank}

    def all_known(self) -> dict[int, PeerStatus]:
        """The newest of each that has been heard of, this learner included."""
        with self._lock:
            return dict(self._known)

    def peers_over(self) -> str:
        """The stop condition that a peer has met; empty while none has."""
        for rank, member in sorted(self.all_known().items()):
            if rank != self.rank and member.over:
                said_by_another = member.over.startswith("learner ")
                return member.over if said_by_another else f"learner {rank}: {member.over}"
        return ""

    def total(self, own: Counters) -> Counters:
        """What all have done together: frames and dollars are added up, updates and seconds are
        this learner's own.
        """
        others = [member for rank, member in self.all_known().items() if rank != self.rank]
        dollars = [own.dollars, *(member.dollars for member in others)]
        total = Counters()
        total.set_from(own.to_json())
        total.env_frames += sum(member.env_frames for member in others)
        total.dollars = max(dollars) if self._whole_bill else sum(dollars)
        return total

    def share(self, episodes: int) -> int:
        """How many of so many episodes are this learner's: those that are dead play none."""
        return -(-episodes // len(self.alive()))

    def mean_return(self, own: Callable[[int], float | None], episodes: int) -> float | None:
        """Mean return over the last episodes of all, each learner's share of `episodes`; None
        until there are so many.

        Args:
            own: this learner's mean over its last so many.
        """
        share = self.share(episodes)
        mine = own(share)
        others = [member for rank, member in self.all_known().items() if rank != self.rank]
        count = share + sum(member.return_count for member in others)
        if mine is None or count < episodes:
            return None
        return (share * mine + sum(member.return_sum for member in others)) / count

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint: what the others had done, should they never come back."""
        return {str(rank): asdict(member) for rank, member in self.all_known().items()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take `to_json` over. It is no progress, and nobody is over any more."""
        with self._lock:
            for rank, fields in saved.items():
                if int(rank) < self.count:  # there may be fewer learners now
                    self._known[int(rank)] = PeerStatus(**{**fields, "over": ""})
                    self._highest[int(rank)] = self._known[int(rank)].iteration
