"""The curves of a run in TensorBoard and W&B: a point of each, every interval.

Each metric names its curve where it is declared (`Metric.tag`), and so do the numbers that no
metric has (`NUMBER_TAGS`, `EVALUATION_TAGS`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seedbed.runtime.metrics import REST, Histogram, Metric, Value
from seedbed.telemetry.checkpoints import EVALUATION_TAGS
from seedbed.telemetry.formats import Number
from seedbed.telemetry.snapshot import NUMBER_TAGS


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
        self, metrics: Sequence[tuple[Metric, Value]], row: Mapping[str, Number]
    ) -> list[Points]:
        """Return the points of this interval."""
        points: dict[str, float] = {}
        for metric, value in metrics:
            if (prefix := metric.tag_prefix) is not None:
                points |= self._points(metric.name, prefix, value)
        for name, tag in NUMBER_TAGS.items():
            if isinstance(number := row[name], int | float):
                points[tag] = float(number)
        kept = {tag: value for tag, value in points.items() if self._is_shown(tag, value)}
        frames = row["env_frames"]
        assert isinstance(frames, int)
        values = {metric.name: value for metric, value in metrics}
        return [*self._evaluation(values, frames), Points(frames, kept)]

    def _points(self, name: str, prefix: str, value: Value) -> dict[str, float]:
        if isinstance(value, Histogram):
            count, total = value.total()
            total_before, count_before = self._before.get(name, (0.0, 0))
            self._before[name] = total, count
            new = count - count_before
            return {prefix: (total - total_before) / new} if new else {}
        if isinstance(value, Mapping):
            return {f"{prefix}/{_word(label)}": float(item) for label, item in value.items()}
        return {prefix: float(value)}

    def _is_shown(self, tag: str, value: float) -> bool:
        if math.isnan(value):
            return False
        if value or not tag.startswith(REST):
            self._begun.add(tag)
        return tag in self._begun

    def _evaluation(self, values: Mapping[str, Any], frames: int) -> list[Points]:
        done, numbers = values["seedbed_evaluations_total"], values["seedbed_evaluation"]
        if done <= self._evaluations:
            return []
        self._evaluations = done
        named = {tag: numbers.get(name, math.nan) for name, tag in EVALUATION_TAGS.items()}
        kept = {tag: value for tag, value in named.items() if not math.isnan(value)}
        return [Points(int(numbers.get("env_frames", frames)), kept)]


def _word(label: object) -> str:
    """Return the values of a metric's labels as one word."""
    parts = label if isinstance(label, tuple) else (label,)
    return "_".join(str(part).replace(" ", "_") for part in parts)
