"""What runs of a set have measured: speed, price, length, and the time beside training."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seedbed.config import Experiment
from seedbed.runs.history import read_history
from seedbed.sets.folder import Member
from seedbed.sets.resolve import Run

# A run that may end before stop.env_frames takes at most this times the longest run of its kind,
# once so many of these have finished.
_MARGIN, _LEAST_FINISHED = 1.5, 3


class Lengths:
    """The frames at which runs of a set end, by those that have finished.

    A stop such as `stop.mean_return` may end a run long before `stop.env_frames`. Runs with the
    same environment and the same stop are of one kind.
    """

    def __init__(self) -> None:
        self._finished: dict[str, tuple[str, float]] = {}

    def note(self, name: str, experiment: Experiment, frames: float) -> None:
        """Take note of a run that has finished, with the frames that it has."""
        self._finished[name] = _kind(experiment), frames

    def forget(self, name: str) -> None:
        """Leave out a run that goes on."""
        self._finished.pop(name, None)

    def left(
        self, experiment: Experiment, frames: float, begun: Iterable[tuple[Experiment, float]]
    ) -> float:
        """Return the most frames that a run still takes, as far as the others tell.

        Args:
            experiment: The run.
            frames: Frames that it has.
            begun: Others that have not ended, with their frames: one may be the longest already.
        """
        most, kind = float(experiment.stop.env_frames), _kind(experiment)
        known = [taken for other, taken in list(self._finished.values()) if other == kind]
        if len(known) >= _LEAST_FINISHED:
            known += [taken for other, taken in begun if _kind(other) == kind]
            most = min(most, _MARGIN * max(frames, *known))
        return max(0.0, most - frames)

    def left_of_all(self, going: Sequence[tuple[Experiment, float]]) -> float:
        """Return the most frames that runs still take together, as far as the others tell.

        Args:
            going: All runs that have not ended, with the frames that they have.
        """
        begun = [one for one in going if one[1]]
        return sum(self.left(*one, begun) for one in going)


def _kind(experiment: Experiment) -> str:
    return f"{experiment.environment.id} {experiment.stop.model_dump_json()}"


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
