"""What a run has taken so far, of all its learners together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.runs.layout import learner_directories
from seedbed.runtime.files import read_object


class Totals(NamedTuple):
    """What a run has taken so far.

    Attributes:
        frames: Emulator frames of all learners together, those that have left too.
        seconds: Seconds of training; of several learners those of the longest.
        dollars: US dollars of all learners together, and of their last evaluation.
    """

    frames: float
    seconds: float
    dollars: float


def totals_of(path: Path) -> Totals:
    """Return what the run at a path has taken, by the files of its learners; 0 before them."""
    learners = learner_directories(path)
    return sum_totals(path, [_status(each) for each in learners or [path]])


def sum_totals(path: Path, statuses: Sequence[Mapping[str, Any]]) -> Totals:
    """Return what a run has taken, where the statuses of its learners are read already.

    Args:
        path: Its run directory.
        statuses: Of each learner, without those that have left.
    """
    left = learner_directories(path, earlier=True)[len(statuses) :]
    every = [*statuses, *map(_status, left)]
    counters = [status.get("counters") or {} for status in every]
    frames, seconds, dollars = (
        [float(each.get(name) or 0.0) for each in counters]
        for name in ("env_frames", "seconds", "dollars")
    )
    # The evaluation of several learners is no learner's, and in the summary alone.
    several = len(every) > 1
    whole = float(read_object(path / "summary.json").get("dollars") or 0.0) if several else 0.0
    return Totals(sum(frames), max(seconds), max(bill_of(dollars, every), whole))


def bill_of(dollars: Sequence[float], statuses: Sequence[Mapping[str, Any] | None]) -> float:
    """Return what all learners of a run have cost.

    Args:
        dollars: What each tells; at least one number.
        statuses: Their statuses; None of one without.
    """
    # A cost meter tells each learner the bill of all.
    metered = any(((status or {}).get("charged") or {}).get("metered") for status in statuses)
    return max(dollars) if metered else sum(dollars)


def _status(path: Path) -> dict[str, Any]:
    return read_object(path / "status.json")
