"""Counts of checkpoints and evaluations."""

import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from seedbed.runtime.metrics import EVAL, Metric, counter, documented, gauge


class CheckpointStats:
    """Checkpoints of this process.

    Attributes:
        written: Checkpoints written by this process.
        failed: Checkpoints that this process failed to write.
        seconds: Seconds to write the newest checkpoint. NaN before the first.
        bytes: Size of the newest checkpoint. NaN before the first.
        age_s: Age of the newest checkpoint. NaN before the first.
        interval_s: Seconds between two checkpoints, `learner.checkpoint.every_s`.
        volume.free: Bytes that are free on the volume of the run directory. NaN without a run
            directory.
        volume.total: Size of the volume of the run directory, without what the file system
            reserves. NaN without a run directory.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        counter("seedbed_checkpoints_total", "written"),
        counter("seedbed_checkpoint_failures_total", "failed"),
        gauge("seedbed_checkpoint_seconds", "seconds"),
        gauge("seedbed_checkpoint_bytes", "bytes"),
        gauge("seedbed_checkpoint_age_seconds", "age_s"),
        gauge("seedbed_checkpoint_interval_seconds", "interval_s"),
        gauge("seedbed_run_volume_free_bytes", "volume.free"),
        gauge("seedbed_run_volume_bytes", "volume.total", tag=None),
    )

    def __init__(self, interval_s: float, folder: Path | None = None) -> None:
        """Count from zero.

        Args:
            interval_s: Seconds between two checkpoints.
            folder: The run directory; None where there is none.
        """
        self.interval_s, self._folder = interval_s, folder
        self.written = self.failed = 0
        self.seconds: float | None = None
        self.bytes: int | None = None
        self._written_at: float | None = None
        self._lock = threading.Lock()

    @property
    def volume(self) -> Any:
        """Size and use of the volume of the run directory; None where it cannot be asked."""
        try:
            usage = None if self._folder is None else shutil.disk_usage(self._folder)
        except OSError:
            return None
        return usage and usage._replace(total=usage.used + usage.free)

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
        count: Evaluations ended in this process.
        newest: Result of the newest evaluation, also from before a restart; {} before the first.
        numbers: Numbers of the newest evaluation; a statistic appears with the first.
        progress: Episodes of the evaluation that goes on, in words; "" of none, or before any.
        is_last: The run has ended, and its last evaluation goes on.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        counter("seedbed_evaluations_total", "count"),
        gauge("seedbed_evaluation", "numbers", ("statistic",), tag=EVAL),
    )

    def __init__(self) -> None:
        self.count = 0
        self.newest: dict[str, Any] = {}
        self.progress = ""
        self.is_last = False

    def on_evaluation(self, result: Mapping[str, Any]) -> None:
        """Count an evaluation that ended; its numbers are exported by their keys."""
        self.newest = dict(result)
        self.count += 1

    @property
    def numbers(self) -> dict[str, float]:
        """Numbers of the newest evaluation, without lists, texts and flags."""
        return {
            name: float(value)
            for name, value in self.newest.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
