"""What runs of a set have measured: speed, price, and the time that a run takes beside training."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seedbed.runs.history import read_history
from seedbed.sets.folder import Member
from seedbed.sets.resolve import Run


class Measured(NamedTuple):
    """Means over the runs of a set that have trained.

    Attributes:
        frames_per_second: Emulator frames a second of training.
        dollars_per_frame: Price of a frame, in US dollars.
        beside_s: Seconds of a run beside its training: start, compilation, last evaluation.
    """

    frames_per_second: float
    dollars_per_frame: float
    beside_s: float

    def seconds(self, frames: float, runs: int) -> float:
        """Return the seconds of so many frames in so many runs, one after the other."""
        return frames / self.frames_per_second + runs * self.beside_s


def measured(folder: Path, runs: Sequence[Run | Member]) -> Measured | None:
    """Return what the runs have measured; None before the first one has trained.

    Args:
        folder: The folder of the set; it need not be there.
        runs: The runs, with their names in the folder.
    """
    frames = seconds = dollars = 0.0
    beside = []
    for run in runs:
        member = Member(folder / f"{run.name}.yaml", {})
        totals = member.totals()
        frames += totals.frames
        seconds += totals.seconds
        dollars += totals.dollars
        starts = read_history(member.run)["starts"]
        status = member.status()
        if len(starts) == 1 and status.get("time") and (member.run / "summary.json").exists():
            beside.append(max(0.0, status["time"] - starts[0]["time"] - totals.seconds))
    if not frames or not seconds:
        return None
    return Measured(frames / seconds, dollars / frames, float(np.mean(beside)) if beside else 0.0)
