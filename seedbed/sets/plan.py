"""What a set takes, before it starts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from seedbed.runtime.formats import columns, duration, money, si_number, significant
from seedbed.runtime.text import counted
from seedbed.sets.ends import has_failed
from seedbed.sets.folder import Member, as_in_folder, read_members
from seedbed.sets.halving import plan_rungs
from seedbed.sets.measured import Lengths, measured
from seedbed.sets.ranges import Range
from seedbed.sets.resolve import ResolvedSet, Run, describe, describe_some
from seedbed.sets.stopped import is_stopped
from seedbed.sets.sweep import axes_of

_MOST_VALUES = 12  # of an axis on one line


def plan(wanted: ResolvedSet, source: str, folder: Path) -> str:
    """Return the number of runs, their frames and the values of every axis, in words.

    Args:
        wanted: The set.
        source: Name of its file in errors.
        folder: Its folder, whose runs have measured the price of rungs; it need not be there.
    """
    stops = [run.experiment.stop.env_frames for run in wanted.runs]
    frames, rungs = _sum("frames", stops), list[str]()
    if wanted.sweep.halving.first:
        total, rungs = plan_rungs(wanted, measured(folder, wanted.runs))
        frames = f"{si_number(total)} frames"
    return "\n".join([_totals(wanted, frames), *_axes(wanted, source), *rungs])


def _totals(wanted: ResolvedSet, frames: str) -> str:
    runs, settings = wanted.runs, wanted.settings
    seeds = len({run.seed for run in runs})
    words = [
        f"set {wanted.name}: {counted(len(runs), 'run')}, {counted(settings, 'setting')} with "
        f"{counted(seeds, 'seed')}{' each' if settings > 1 else ''}",
        frames,
    ]
    dollars = [run.experiment.stop.dollars for run in runs]
    if any(dollars):
        words.append(
            f"at most {money(sum(dollars))}" if all(dollars) else "not every run has stop.dollars"
        )
    budget = wanted.sweep.budget
    bounds = {
        f"{money(budget.dollars)}": budget.dollars,
        f"{si_number(budget.frames)} frames": budget.frames,
        f"{significant(budget.hours)} hours": budget.hours,
    }
    words += [f"ended at {text} together" for text, bound in bounds.items() if bound]
    return ", ".join(words)


def _sum(noun: str, amounts: Sequence[int]) -> str:
    if not all(amounts):
        return f"{noun} unknown: not every run has stop.env_frames"
    return f"at most {si_number(sum(amounts))} {noun}"


def _axes(wanted: ResolvedSet, source: str) -> Iterator[str]:
    for key, axis in axes_of(wanted.sweep, source).items():
        if isinstance(axis, Range):
            yield f"  {key}: {axis.text}, {counted(wanted.sweep.draws.number, 'draw')}"
        else:
            yield f"  {key}: {describe_some(axis, _MOST_VALUES)}"
    for warning in wanted.warnings:
        yield f"  {warning}"


def to_go(
    folder: Path, runs: Sequence[Run | Member], at_once: int, retry: str | None = None
) -> str:
    """Return what the runs still take, in words: frames, time and dollars.

    Time and dollars are those at the speed and the price that runs of the set have measured; before
    the first one has trained there are none.

    Args:
        folder: The folder of the set; it need not be there.
        runs: The runs, with their names in the folder.
        at_once: Runs at the same time.
        retry: `failed` or `stopped`: runs that are started again, and count.
    """
    found = measured(folder, runs)
    if not all(run.experiment.stop.env_frames for run in runs):
        return "to go: not known, since not every run has stop.env_frames"
    lengths, going = Lengths(), []
    for run in runs:
        member = Member(folder / f"{run.name}.yaml", {})
        is_left = (has_failed(member) and retry != "failed") or (
            is_stopped(member) and retry != "stopped"
        )
        if member.has_met(run.experiment):
            lengths.note(run.name, run.experiment, member.frames)
        elif not is_left:
            going.append((run.experiment, member.frames))
    left, count = lengths.left_of_all(going), len(going)
    words = f"to go: {counted(count, 'run')}, {si_number(left)} frames"
    if found is None:
        return f"{words}; time and dollars are measured by the first one that trains"
    hours = duration(found.seconds(left, count) / at_once)
    words += f", {hours} and {money(left * found.dollars_per_frame)} at "
    words += f"{si_number(found.frames_per_second)} frames/s a run"
    return words + (f" and {duration(found.beside_s)} beside" if found.beside_s else "")


def plan_confirmation(fresh: ResolvedSet, folder: Path | None, at_once: int) -> str:
    """Return which settings are confirmed, and what the set takes with these runs, in words.

    Args:
        fresh: The runs on fresh seeds.
        folder: The folder of the set; None where it is not here.
        at_once: Runs at the same time.

    Raises:
        SeedbedError: As `as_in_folder`.
    """
    chosen = " and ".join(dict.fromkeys(describe(run.values) for run in fresh.runs))
    words = f"confirm: {counted(len(fresh.runs), 'run')} on fresh seeds, of {chosen}"
    if folder is None:
        return words
    runs: list[Run | Member] = [*read_members(folder), *as_in_folder(folder, fresh)]
    return f"{words}\n  with them, {to_go(folder, runs, at_once)}"


def table(runs: Sequence[Run]) -> str:
    """Return a line for each run: its name, its seed and its values."""
    rows = [("run", "seed", "values")]
    rows += [(run.name, str(run.seed), describe(run.values)) for run in runs]
    return columns(rows, "<><")
