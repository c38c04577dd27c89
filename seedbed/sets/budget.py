"""The bound of a whole set: what is spent, what running runs have reserved, and what still fits.

A run starts only if what is spent and what all running ones may still take leaves room for it.
What a run may take is its own `stop.dollars`, or its frames to `stop.env_frames` at the price of a
frame that the set has measured; fewer frames where runs of its kind have ended long before. Where
that was too low, the bound still ends every run, with a checkpoint.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from seedbed.runs.totals import Totals
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.files import atomic_write
from seedbed.runtime.formats import money, si_number
from seedbed.runtime.shortage import is_shortage
from seedbed.sets.folder import Member
from seedbed.sets.measured import Lengths
from seedbed.sets.resolve import Run
from seedbed.sets.sweep import Budget


class Spent(NamedTuple):
    """What the runs of a set have taken so far."""

    dollars: float
    frames: float
    hours: float


def check_budget(budget: Budget, runs: Sequence[Run]) -> None:
    """Refuse a bound below one run, or runs of which nobody knows what they will take.

    Raises:
        SeedbedError: CONFIG, with both numbers.
    """
    for run in runs:
        stop = run.experiment.stop
        if budget.dollars and not (stop.dollars or stop.env_frames):
            raise ConfigError(
                f"budget.dollars {money(budget.dollars)}: {run.name} has neither stop.dollars nor "
                "stop.env_frames, so that nothing can be reserved for it: set one of them"
            )
        if budget.dollars and stop.dollars > budget.dollars:
            raise ConfigError(
                f"budget.dollars {money(budget.dollars)} is less than stop.dollars "
                f"{money(stop.dollars)} of one run, {run.name}"
            )
        if budget.frames and not stop.env_frames:
            raise ConfigError(
                f"budget.frames {si_number(budget.frames)}: {run.name} has no stop.env_frames, so "
                "that nothing can be reserved for it: set it"
            )
        if stop.env_frames > budget.frames > 0:
            raise ConfigError(
                f"budget.frames {budget.frames:,.0f} is less than stop.env_frames "
                f"{stop.env_frames:,} of one run, {run.name}"
            )


class Spending:
    """What a set spends, beside its bound.

    Args:
        folder: The folder of the set.
        budget: Its bound.
        dollars_of: Returns what a run has cost; None is what its status tells.

    Attributes:
        lengths: The frames of the runs that have finished.
    """

    def __init__(
        self, folder: Path, budget: Budget, dollars_of: Callable[[Member], float] | None = None
    ) -> None:
        self._file = folder / "set" / "hours.json"
        self._budget, self._dollars = budget, dollars_of
        self._ended: dict[str, tuple[float, float]] = {}
        self.lengths = Lengths()
        try:
            self._hours = float(json.loads(self._file.read_text())["hours"])
        except (OSError, ValueError, TypeError, KeyError):
            self._hours = 0.0

    @property
    def has_bound(self) -> bool:
        """Whether anything bounds the set."""
        return any(self._budget.model_dump().values())

    def add_seconds(self, seconds: float) -> None:
        """Count time during which at least one run has trained.

        Raises:
            OSError: The file cannot be written, for another reason than a shortage.
        """
        self._hours += seconds / 3600
        try:
            atomic_write(self._file, json.dumps({"hours": self._hours}) + "\n")
        except OSError as error:
            if not is_shortage(error):  # the next second writes it
                raise

    def spent(self, members: Sequence[Member], running: Sequence[Member]) -> Spent:
        """Return what all runs have taken, as their status tells it."""
        names = {member.name for member in running}
        taken = []
        for member in members:
            if member.name in names:
                self._ended.pop(member.name, None)
                self.lengths.forget(member.name)
            elif member.name in self._ended:
                taken.append(self._ended[member.name])
                continue
            totals = member.totals() if member.run.exists() else Totals(0.0, 0.0, 0.0)
            one = self._dollars(member) if self._dollars else totals.dollars, totals.frames
            taken.append(one)
            if member.name not in names and (member.run / "summary.json").exists():
                self._ended[member.name] = one
                if member.is_finished:
                    self.lengths.note(member.name, member.experiment, totals.frames)
        dollars, frames = (sum(column) for column in zip(*taken, strict=True))
        return Spent(dollars, frames, self._hours)

    def exceeded(self, spent: Spent) -> str:
        """Return which bound is reached, with both numbers; empty where none is."""
        budget = self._budget
        if budget.dollars and spent.dollars >= budget.dollars:
            return f"budget.dollars: {money(spent.dollars)} of {money(budget.dollars)}"
        if budget.frames and spent.frames >= budget.frames:
            return f"budget.frames: {si_number(spent.frames)} of {si_number(budget.frames)}"
        if budget.hours and spent.hours >= budget.hours:
            return f"budget.hours: {spent.hours:.3g} hours of {budget.hours:.3g}"
        return ""

    def refusal(self, member: Member, running: Sequence[Member], spent: Spent) -> str:
        """Return why a run does not fit beside those that run; empty if it does."""
        budget = self._budget
        begun = [(one.experiment, float(one.frames)) for one in running]
        frames = [self.lengths.left(*one, begun) for one in begun]
        wanted_frames = self.lengths.left(member.experiment, member.frames, begun)
        if budget.dollars:
            price = spent.dollars / spent.frames if spent.frames and spent.dollars else None
            reserved = [
                self._dollars_of(one, most, price)
                for one, most in zip(running, frames, strict=True)
            ]
            wanted = self._dollars_of(member, wanted_frames, price)
            left = budget.dollars - spent.dollars
            if price is None and running and (wanted is None or None in reserved):
                return "budget.dollars: until the first run has measured the price of a frame"
            taken = sum(one or 0.0 for one in reserved)
            if taken + (wanted or 0.0) > left:
                return (
                    f"budget.dollars: {member.name} may take {money(wanted)}, and of "
                    f"{money(budget.dollars)} {money(spent.dollars)} is spent and {money(taken)} "
                    "reserved"
                )
        if budget.frames and spent.frames + sum(frames) + wanted_frames > budget.frames:
            return (
                f"budget.frames: {member.name} may take {si_number(wanted_frames)}, and of "
                f"{si_number(budget.frames)} {si_number(spent.frames)} are spent and "
                f"{si_number(sum(frames))} reserved"
            )
        return ""

    def _dollars_of(self, member: Member, frames: float, price: float | None) -> float | None:
        """Return the dollars that a run may still take; None where nothing tells it yet.

        Args:
            member: The run.
            frames: The most frames that it still takes.
            price: US dollars of a frame; None before one is measured.
        """
        stop = member.experiment.stop
        if stop.dollars:
            spent = self._dollars(member) if self._dollars else member.totals().dollars
            return max(0.0, stop.dollars - spent)
        return None if price is None else price * frames
