"""Status of every learner: which ones make progress, and what they have done together."""

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from seedbed.numbers import check_number
from seedbed.telemetry.counters import Counters
from seedbed.v1.gossip_pb2 import Member

# A float64 counts exactly up to here, and no sum of such numbers is infinite.
LARGEST = 2.0**53

# Numbers of a heartbeat, each with the smallest value that is allowed.
_NUMBERS = {
    **dict.fromkeys(("iteration", "updates", "env_frames", "seconds", "dollars"), 0.0),
    "return_sum": -LARGEST,
}
# Most that a learner reaches in a second. It is far more than any does, so that no learner is
# refused that takes over a bill, and far less than what ends the runs of others at once.
_A_SECOND = {"iteration": 1e5, "updates": 1e5, "env_frames": 1e8, "seconds": 1e3, "dollars": 1e4}
# Seconds that a status may be late.
_LATE_S = 60.0
# Text of a stop condition, which begins with the learner if another one has met it.
_CONDITION = re.compile(r"(?:learner \d+: )?stop\.(\w+): ")


def _fields(status: Member) -> dict[str, Any]:
    """Return the fields of a heartbeat by name; `gossip.proto` describes them."""
    return {field.name: getattr(status, field.name) for field in status.DESCRIPTOR.fields}


def check_status(status: Member) -> None:
    """Judge the numbers of a peer's status.

    Raises:
        InvalidNumbers: A number is not finite, negative, or too large to be counted.
    """
    for name, low in _NUMBERS.items():
        check_number(name, getattr(status, name), low, LARGEST)


class ImplausibleGrowth(ValueError):
    """A count of a peer has grown by more than a learner reaches in the time since the last one."""


class Membership:
    """Newest status of every learner. Thread-safe.

    A learner counts as alive while its local iterations advance. A learner that answers without
    progress, because it has no actors or its machine hangs, is excluded like one that stopped, and
    included again with its next iteration. A learner that waits for a peer, as τ demands, counts
    as alive, because its own deadline ends that wait.

    Args:
        rank: Rank of this learner.
        count: Number of learners.
        deadline_s: Seconds without progress after which a peer no longer counts as alive. A peer
            has as long to make its first iteration.
        whole_bill: Whether each learner's dollars are the cost of all learners, as a cost meter
            counts them.
        now: Clock, in seconds.

    Attributes:
        iteration: Local iterations of this learner under gossip, over all restarts.
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
        self.iteration = 0
        self._whole_bill = whole_bill
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[int, Member] = {}
        self._heard: set[int] = set()
        self._refused: set[int] = set()  # peers whose newest parameters are refused
        self._highest: dict[int, int] = {}
        # Ranks whose present process is the one at the peer's address, and the newest status of
        # each rank that such a process has had. What another one states is not kept.
        self._proven: set[int] = {rank}
        self._kept: dict[int, Member] = {}
        self._progress = dict.fromkeys(range(count), now())
        # What each peer's process stated first, and when: its growth is judged from there.
        self._first: dict[int, tuple[float, Member]] = {}

    def on_process(self, rank: int) -> None:
        """Note that another process has connected as a peer, which has proved nothing yet.

        What the one before has stated without a proof is forgotten.
        """
        with self._lock:
            self._proven.discard(rank)
            self._first.pop(rank, None)
            self._known.pop(rank, None)
            if rank in self._kept:
                self._known[rank] = self._kept[rank]

    def on_proof(self, rank: int) -> None:
        """Note that a peer's address answers as its process: what that states is kept."""
        with self._lock:
            self._proven.add(rank)
            self._keep(rank)

    def _keep(self, rank: int) -> None:
        if rank in self._known:
            self._kept[rank] = self._known[rank]
            self._highest[rank] = max(self._highest.get(rank, 0), self._known[rank].iteration)

    def _check_growth(self, rank: int, status: Member, own: Member | None) -> None:
        """Judge how the counts of a peer's process have grown since it first stated them.

        A learner that takes over the whole state of another one jumps to the other's counts, and
        one that has lost its run directory to its own highest iteration.

        Args:
            rank: Rank of the peer.
            status: Its status.
            own: Status of this learner.

        Raises:
            ImplausibleGrowth: A count has grown by more than a learner reaches.
        """
        first_s, first = self._first.setdefault(rank, (self._now(), status))
        passed_s = self._now() - first_s
        others = [each for at, each in self._known.items() if at != rank]
        reached = [first, Member(iteration=self._highest.get(rank, 0)), own or first, *others]
        for name, most in _A_SECOND.items():
            number, before = getattr(status, name), getattr(first, name)
            highest = max(getattr(one, name) for one in reached)
            if number > highest + most * (passed_s + _LATE_S):
                raise ImplausibleGrowth(
                    f"{name} of learner {rank} is {number:.10g}, and was {before:.10g} "
                    f"{passed_s:.1f} s before: a learner reaches at most {most:g} a second"
                )

    def update(
        self, rank: int, status: Member, is_requested: bool = False, own: Member | None = None
    ) -> None:
        """Store the status of a heartbeat, or of an answer.

        Args:
            rank: Rank of the peer.
            status: Its status.
            is_requested: Whether it is the answer of the process at the peer's address.
            own: Status of this learner.

        Raises:
            InvalidNumbers: A number is not finite, negative, or too large to be counted.
            ImplausibleGrowth: A number has grown by more than a learner reaches.
        """
        check_status(status)
        with self._lock:
            if not is_requested:
                self._check_growth(rank, status, own)
            before = self._known.get(rank)
            # A smaller iteration is progress too: the learner resumed from an older checkpoint.
            if before is None or status.waiting or status.iteration != before.iteration:
                self._progress[rank] = self._now()
            self._known[rank] = status
            self._heard.add(rank)
            if is_requested or rank in self._proven:
                self._keep(rank)

    def on_parameters(self, rank: int, iteration: int, own: Member | None = None) -> None:
        """Record the progress that a peer's parameters prove.

        Args:
            rank: Rank of the peer.
            iteration: Its local iteration that made them.
            own: Status of this learner.

        Raises:
            ValueError: The iteration is beyond what a learner can reach.
        """
        check_number("chunk.iteration", iteration, high=LARGEST)
        with self._lock:
            before = self._known.get(rank, Member())
            after = Member(**{**_fields(before), "iteration": iteration})
            self._check_growth(rank, after, own)
            if rank in self._refused:
                self._refused.remove(rank)
                self._progress[rank] = self._now()
            if iteration > before.iteration:
                self._progress[rank] = self._now()
                self._known[rank] = after
            self._highest[rank] = max(self._highest.get(rank, 0), iteration)
            if rank in self._proven:
                self._keep(rank)

    def on_refusal(self, rank: int) -> None:
        """Exclude a peer, whose parameters are refused, until others of it are accepted."""
        with self._lock:
            self._refused.add(rank)

    def alive(self) -> frozenset[int]:
        """Return the ranks that make progress, and always this learner's own."""
        since = self._now() - self.deadline_s
        with self._lock:
            progressing = {rank for rank, at in self._progress.items() if at > since}
            return frozenset(progressing - self._refused | {self.rank})

    def highest_iteration(self, rank: int) -> int:
        """Return the highest local iteration that was ever received of a learner.

        A learner that lost its run directory counts from 0 again, so its newest status is not
        the highest.
        """
        with self._lock:
            return self._highest.get(rank, 0)

    def peers_heard(self) -> dict[int, Member]:
        """Return the newest status of each peer that has sent a heartbeat to this process."""
        with self._lock:
            return {rank: self._known[rank] for rank in self._heard if rank != self.rank}

    def all_known(self) -> dict[int, Member]:
        """Return the newest status of each learner, those from the checkpoint included."""
        with self._lock:
            return dict(sorted(self._known.items()))

    def _others(self) -> dict[int, Member]:
        known = self.all_known().items()
        return {rank: status for rank, status in known if rank != self.rank and rank < self.count}

    @property
    def left_env_frames(self) -> int:
        """Emulator frames of learners of an earlier start, which had more learners."""
        return int(sum(status.env_frames for status in self._left()))

    def _left(self) -> list[Member]:
        return [status for rank, status in self.all_known().items() if rank >= self.count]

    def peers_over(self) -> dict[str, int]:
        """Return the stop conditions that peers say are met: the key, and the rank of a peer."""
        found = ((rank, _CONDITION.match(peer.over)) for rank, peer in self._others().items())
        return {match[1]: rank for rank, match in found if match}

    def furthest(self, own: Counters) -> Counters:
        """Return `total` with the most updates and seconds that any learner counts."""
        result = self.total(own)
        for status in self._others().values():
            result.updates = max(result.updates, status.updates)
            result.seconds = max(result.seconds, status.seconds)
        return result

    def total(self, own: Counters) -> Counters:
        """Add up the frames and dollars of all learners; updates and seconds stay `own`.

        Those of learners that an earlier start had count as well.
        """
        others = [*self._others().values(), *self._left()]
        dollars = [own.dollars, *(status.dollars for status in others)]
        total = Counters()
        total.set_from(own.to_json())
        total.env_frames += sum(status.env_frames for status in others)
        total.dollars = max(dollars) if self._whole_bill else sum(dollars)
        return total

    def share(self, episodes: int) -> int:
        """Return this learner's part of a number of episodes.

        Args:
            episodes: Episodes of all learners alive together.
        """
        return -(-episodes // len(self.alive()))

    def mean_return(self, own: Callable[[int], float | None], episodes: int) -> float | None:
        """Return the mean return of the last episodes of all learners.

        Args:
            own: Returns this learner's mean return over its last so many episodes, or None if it
                has fewer.
            episodes: Episodes to average over, divided among the learners alive.

        Returns:
            The mean, or None until there are so many episodes.
        """
        share = self.share(episodes)
        mine = own(share)
        others = [peer for peer in self._others().values() if peer.return_count <= episodes]
        count = share + sum(status.return_count for status in others)
        if mine is None or count < episodes:
            return None
        return (share * mine + sum(status.return_sum for status in others)) / count

    def confirmed_by(self, answers: Mapping[int, Member]) -> "Membership":
        """Return the learners as they are by answers, and by what is kept of those without one.

        Args:
            answers: Statuses by rank, which were requested at the addresses of the peers.
        """
        result = Membership(self.rank, self.count, self.deadline_s, self._whole_bill, self._now)
        with self._lock:
            result._known = {**self._kept, **answers}
            result._progress, result._refused = dict(self._progress), set(self._refused)
        return result

    def to_json(self) -> dict[str, Any]:
        """Return all statuses for a checkpoint, because a peer may never come back."""
        with self._lock:
            return {str(rank): _fields(status) for rank, status in sorted(self._kept.items())}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the output of `to_json`.

        This does not count as progress, and it clears every peer's stop condition.
        """
        with self._lock:
            for rank, fields in saved.items():
                self._known[int(rank)] = Member(**{**fields, "over": ""})
                self._kept[int(rank)] = self._known[int(rank)]
                self._highest[int(rank)] = self._known[int(rank)].iteration
