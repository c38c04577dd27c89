"""Which run of a set starts next, here or on a cluster: order, bound, rungs, and failures."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.text import counted
from seedbed.sets.budget import Spending, Spent
from seedbed.sets.ends import End, code_name, has_failed, read_ends, write_ends
from seedbed.sets.folder import Member, read_members
from seedbed.sets.halving import decide, describe_decision, members_at_rungs
from seedbed.sets.stopped import is_stopped, unmark
from seedbed.sets.sweep import Budget

# Failures in a row with one code and cause, each soon after its start, that are no run's own.
_ALIKE = 3
_SOON_S = 120.0


class Admission:
    """The runs of a set that wait, in their order, and what keeps them from starting.

    The first seed of every setting comes before the second one, so that a set which is cut short
    is balanced. Runs that are added to the folder are found too.

    Args:
        folder: The folder of the set.
        report: Takes a line about what was decided.
        budget: Bound of the set; None is none.
        retries_failed: Whether a run that has failed before is started again.
        retries_stopped: Whether a run that a person has stopped is started again.
        dollars_of: Returns what a run has cost; None is what its status tells.

    Attributes:
        bound: Which bound has ended the set, or leaves no room for another run, with both numbers;
            empty without one.
        brake: Why no other run is started, though some wait; empty where that is not so.
        spending: What the set has spent.
    """

    def __init__(
        self,
        folder: Path,
        report: Callable[[str], None],
        budget: Budget | None = None,
        retries_failed: Callable[[Member], bool] = lambda _: False,
        retries_stopped: Callable[[Member], bool] = lambda _: False,
        dollars_of: Callable[[Member], float] | None = None,
    ) -> None:
        self._folder, self._report = folder, report
        self._retries_failed, self._retries_stopped = retries_failed, retries_stopped
        self._tried: set[str] = set()
        self._alike: list[tuple[Member, tuple[int, str]]] = []
        self.spending = Spending(folder, budget or Budget(), dollars_of)
        self.bound = ""
        self.brake = ""

    def waiting(self) -> Iterator[tuple[Member, str]]:
        """Yield the runs that may start, in their order, each with its place among all."""
        members = members_at_rungs(self._folder)
        for number, member in enumerate(in_order(members), 1):
            if member.name in self._tried or member.is_pruned:
                continue
            if member.is_finished:
                self._tried.add(member.name)  # reading it again takes time
                continue
            if has_failed(member) and not self._retries_failed(member):
                continue
            if is_stopped(member) and not self._retries_stopped(member):
                continue
            yield member, f"{number} of {len(members)}"

    def begin(self, member: Member) -> None:
        """Take a run out of those that wait."""
        if self._retries_stopped(member):
            unmark(member)
        self._tried.add(member.name)

    def wait_again(self, member: Member) -> None:
        """Put a run back among those that wait."""
        self._tried.discard(member.name)

    def spent(self, running: Sequence[Member]) -> Spent:
        """Return what all runs have taken."""
        return self.spending.spent(read_members(self._folder), running)

    def has_room(self, member: Member, running: Sequence[Member]) -> bool:
        """Return whether the bound has room for a run beside those that run; tell it in `bound`."""
        self.bound = ""
        if self.spending.has_bound:  # without one, no status is read
            spent = self.spent(running)
            self.bound = self.spending.exceeded(spent) or self.spending.refusal(
                member, running, spent
            )
        return not self.bound

    def decides(self) -> bool:
        """Rank the settings of a rung that all its runs have reached; return whether it did."""
        if self.brake or self.bound:
            return False
        try:
            decision = decide(self._folder)
        except SeedbedError as error:
            self.brake = str(error)
            return False
        if decision is None:
            return False
        self._report(describe_decision(decision))
        self._tried -= {name for row in decision["ranking"] for name in row["runs"]}
        return True

    def note_finished(self) -> None:
        """Take note of a run that has reached its end or its rung."""
        self._alike.clear()

    def note_failure(self, member: Member, code: int, cause: str, seconds: float) -> None:
        """Record the end of a run that has failed.

        Failures in a row that are alike set the brake: their runs wait again, as all others.

        Args:
            member: The run.
            code: As of `subprocess`: a signal is below zero.
            cause: The error in words.
            seconds: Time since the run was started.

        Raises:
            OSError: The end cannot be written.
        """
        end: End = {"code": code, "cause": cause, "env_frames": member.frames}
        write_ends(member, [*read_ends(member), end])
        if seconds > _SOON_S:
            self._alike.clear()
            return
        kind = code, re.sub(r"\d+", "0", cause.replace(member.name, ""))
        if self._alike and self._alike[-1][1] != kind:
            self._alike.clear()
        self._alike.append((member, kind))
        if len(self._alike) < _ALIKE:
            return
        for one, _ in self._alike if not self.brake else self._alike[-1:]:
            write_ends(one, read_ends(one)[:-1])
        self.brake = self.brake or (
            f"{counted(_ALIKE, 'run')} in a row ended with {code_name(code)} for the same cause: "
            f"no other run is started. {cause}. The same command goes on, with these too"
        )


def in_order(members: Sequence[Member]) -> list[Member]:
    """Return the runs seed-major: the n-th seed of every setting before the n+1-th of any."""
    counts: dict[str, int] = {}
    ranks = []
    for member in members:
        setting = repr(sorted(member.values.items()))
        ranks.append(counts.setdefault(setting, 0))
        counts[setting] += 1
    return [member for _, _, member in sorted(zip(ranks, range(len(ranks)), members, strict=True))]
