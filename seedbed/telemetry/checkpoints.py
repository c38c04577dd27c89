"""Counts of checkpoints and evaluations."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from seedbed.runtime.metrics import Metric, counter, gauge


class CheckpointStats:
    """Checkpoints of this process.

    Attributes:
        interval_s: `learner.checkpoint.every_s`.
        seconds: How long the newest one took; NaN before the first.
        bytes: Size of the newest one; NaN before the first.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = (
        counter("seedbed_checkpoints_total", "Checkpoints written by this process.", "written"),
        counter(
            "seedbed_checkpoint_failures_total",
            "Checkpoints that this process failed to write.",
            "failed",
        ),
        gauge(
            "seedbed_checkpoint_seconds",
            "Seconds to write the newest checkpoint. NaN before the first.",
            "seconds",
        ),
        gauge(
            "seedbed_checkpoint_bytes",
            "Size of the newest checkpoint. NaN before the first.",
            "bytes",
        ),
        gauge(
            "seedbed_checkpoint_age_seconds",
            "Age of the newest checkpoint. NaN before the first.",
            lambda s: math.nan if s.age_s is None else s.age_s,
        ),
        gauge(
            "seedbed_checkpoint_interval_seconds",
            "Seconds between two checkpoints, `learner.checkpoint.every_s`.",
            "interval_s",
        ),
    )

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.written = self.failed = 0
        self.seconds = self.bytes = math.nan
        self._written_at: float | None = None
        self._lock = threading.Lock()

    @property
    def age_s(self) -> float | None:
        """Age of the newest checkpoint; None before the first."""
        return None if self._written_at is None else time.monotonic() - self._written_at

    def on_checkpoint(self, seconds: float, bytes: int, ok: bool) -> None:
        """Count a checkpoint that was written in `seconds`, or could not be written."""
        with self._lock:
            if not ok:
                self.failed += 1
                return
            self.written += 1
            self.seconds, self.bytes = seconds, bytes
            self._written_at = time.monotonic()


class EvaluationStats:
    """Evaluations of this process.

    Attributes:
        newest: Result of the newest evaluation, also from before a restart; {} before the first.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = (
        counter("seedbed_evaluations_total", "Evaluations ended in this process.", "count"),
        gauge(
            "seedbed_evaluation",
            "Numbers of the newest evaluation; a statistic appears with the first.",
            lambda s: _floats(s.newest),
            "statistic",
        ),
    )

    def __init__(self) -> None:
        self.count = 0
        self.newest: dict[str, Any] = {}

    def on_evaluation(self, result: Mapping[str, Any]) -> None:
        """Count an evaluation that ended; its numbers are exported by their keys."""
        self.newest = dict(result)
        self.count += 1

    def restore(self, result: Mapping[str, Any]) -> None:
        """Set the newest result of an earlier process."""
        self.newest = dict(result)


def _floats(result: Mapping[str, object]) -> dict[str, float]:
    """Return the numbers of a mapping, without lists, texts and flags."""
    return {
        name: float(value)
        for name, value in result.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
