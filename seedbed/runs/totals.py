"""What a run has taken so far, of all its learners together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seedbed.runs.layout import learner_directories
from seedbed.runtime.files import read_object


class Totals(NamedTuple):
    """What a run has taken so far.

    Attributes:
        frames: Emulator frames of all learners together.
        seconds: Seconds of training; of several learners those of the longest.
        dollars: US dollars of all learners together, and of their last evaluation.
    """

    frames: float
    seconds: float
    dollars: float


def totals_of(path: Path) -> Totals:
    """Return what the run at a path has taken, by the files of its learners; 0 before them."""
    learners = learner_directories(path)
    statuses = [read_object(each / "status.json") for each in learners or [path]]
    return sum_totals(path, [status.get("counters") or {} for status in statuses])


def sum_totals(path: Path, counters: Sequence[Mapping[str, Any]]) -> Totals:
    """Return what a run has taken, where the statuses of its learners are read already.

    Args:
        path: Its run directory.
        counters: Of the status of each learner.
    """
    frames, seconds, dollars = (
        [float(each.get(name) or 0.0) for each in counters]
        for name in ("env_frames", "seconds", "dollars")
    )
    # The evaluation of several learners is no learner's, and in the summary alone.
    several = len(counters) > 1
    whole = float(read_object(path / "summary.json").get("dollars") or 0.0) if several else 0.0
    return Totals(sum(frames), max(seconds), max(sum(dollars), whole))
