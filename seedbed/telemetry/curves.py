"""The curves of a run in TensorBoard and W&B: a point of each, every interval.

Each metric names the group of its curves where it is declared (`Metric.tag`), and so do the numbers
that no metric has (`GROUPS`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from seedbed.runtime.formats import Number
from seedbed.runtime.metrics import EVAL, SYSTEM, Histogram, Metric, Value

# Groups of the numbers that no metric has; the others are in `system/`.
GROUPS = {
    **dict.fromkeys(("min_return", "max_return"), "charts"),
    **dict.fromkeys(("trained_fps_60s", "dollars_per_billion_frames"), "speed"),
    "frames_per_kilojoule": "speed",
}


class Points(NamedTuple):
    """Values by tag, at one step.

    Attributes:
        env_frames: The step: emulator frames so far.
        values: Without NaN.
    """

    env_frames: int
    values: dict[str, float]


class Curves:
    """Turns the values of an interval into points.

    A histogram becomes the mean of what was added to it since the last call, and has no point when
    nothing was. A curve of `system/` begins with its first value that is not 0: what a run does not
    use has none. An evaluation is a point at the frames of its checkpoint.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int]] = {}
        self._begun: set[str] = set()
        self._evaluations = 0.0

    def take(
        self, metrics: Sequence[tuple[Metric, Value]], numbers: Mapping[str, Number]
    ) -> list[Points]:
        """Return the points of this interval."""
        points: dict[str, float] = {}
        for metric, value in metrics:
            points |= metric.curves(self._number(metric.name, value))
        drawn = {tag.rpartition("/")[2] for tag in points} | {"time"}
        for name, number in numbers.items():
            if name not in drawn and isinstance(number, int | float):
                points[f"{GROUPS.get(name, SYSTEM)}/{name}"] = float(number)
        evaluation = {
            tag: x for tag, x in points.items() if tag.startswith(f"{EVAL}/") and not math.isnan(x)
        }
        shown = {
            tag: x for tag, x in points.items() if tag not in evaluation and self._is_shown(tag, x)
        }
        frames = numbers["env_frames"]
        assert isinstance(frames, int)
        before, self._evaluations = self._evaluations, points[f"{SYSTEM}/evaluations"]
        if self._evaluations <= before:
            return [Points(frames, shown)]
        step = int(evaluation.get(f"{EVAL}/evaluation_env_frames", frames))
        return [Points(step, evaluation), Points(frames, shown)]

    def _number(self, name: str, value: Value) -> Value:
        if not isinstance(value, Histogram):
            return value
        count, total = value.total()
        total_before, count_before = self._before.get(name, (0.0, 0))
        self._before[name] = total, count
        new = count - count_before
        return (total - total_before) / new if new else math.nan

    def _is_shown(self, tag: str, value: float) -> bool:
        if math.isnan(value):
            return False
        if value or not tag.startswith(f"{SYSTEM}/"):
            self._begun.add(tag)
        return tag in self._begun
