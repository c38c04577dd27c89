"""Everything that is written each `logging.interval_s`."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TextIO

from seedbed.config.schema import Experiment
from seedbed.runtime.formats import Number
from seedbed.runtime.metrics import Metric, counter, documented
from seedbed.runtime.shortage import cure
from seedbed.telemetry.curves import Points
from seedbed.telemetry.progress import ProgressFile
from seedbed.telemetry.progress_line import ProgressLine
from seedbed.telemetry.status import RunStatus, write_status
from seedbed.telemetry.weights_and_biases import WandbRun

if TYPE_CHECKING:  # tensorboardX is the learner's; a laptop that only deploys has none
    from seedbed.telemetry.tensorboard import EventFile

log = logging.getLogger(__name__)

OUTPUTS = ("progress.csv", "tensorboard", "status.json", "progress line", "wandb")


class Outputs:
    """The progress line, the files of the run directory, and W&B.

    An output that cannot be written is logged when it begins to fail, counted, and tried again at
    the next interval.

    Attributes:
        errors: Intervals in which an output could not be written; the log has the reason.
        failing: Outputs that could not be written the last time.
        dropped_rows: Rows of progress.csv that a full volume or a kill had cut; they are dropped.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        counter("seedbed_telemetry_errors_total", "errors", ("output",), OUTPUTS),
        counter("seedbed_progress_dropped_rows_total", "dropped_rows"),
    )

    def __init__(
        self,
        experiment: Experiment,
        run_dir: Path | None,
        out: TextIO,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open what is open all the time.

        Args:
            experiment: The run's settings.
            run_dir: Where files are written; must exist. None writes none.
            out: Where the progress line goes.
            now: Monotonic seconds.

        Raises:
            SeedbedError: CONFIG, when W&B cannot be loaded.
        """
        self.errors: Counter[str] = Counter()
        self.failing: set[str] = set()
        self._closed = False
        self._run_dir = run_dir
        self._line = ProgressLine(out, now)
        self._progress = ProgressFile(run_dir / "progress.csv") if run_dir else None
        self._experiment = experiment
        # Opened by the first `write`, when the counters are restored.
        self._events: EventFile | None = None
        enabled = experiment.logging.wandb.enabled
        self._wandb = WandbRun(experiment, run_dir) if enabled else None

    @property
    def dropped_rows(self) -> int:
        """Rows of progress.csv that had been cut."""
        return self._progress.dropped_rows if self._progress else 0

    def write(
        self,
        row: Mapping[str, Number],
        parts: list[str],
        curves: Callable[[], list[Points]],
        status: Callable[[], RunStatus],
    ) -> None:
        """Write everything once.

        Args:
            row: The row of progress.csv.
            parts: The progress line.
            curves: Returns the points of TensorBoard and W&B.
            status: Returns the object of status.json.
        """
        self._guarded("progress line", partial(self._line.show, parts))
        if self._closed:
            return
        points = cache(curves)
        if self._run_dir and self._progress:
            run_dir = self._run_dir
            self._guarded("progress.csv", partial(self._progress.append, row))
            self._guarded("tensorboard", lambda: self._write_events(run_dir, points()))
            self._guarded("status.json", lambda: write_status(run_dir, status()))
        if wandb := self._wandb:
            self._guarded("wandb", lambda: wandb.log(points()))

    def close(self) -> None:
        """Close the files. A `write` after that writes nothing."""
        self._closed = True
        self._line.close()
        if self._events:
            self._guarded("tensorboard", self._events.close)
        if self._wandb:
            self._guarded("wandb", self._wandb.close)

    def _write_events(self, run_dir: Path, points: Iterable[Points]) -> None:
        *_, (frames, _) = points
        try:
            if self._events is None:
                from seedbed.telemetry.tensorboard import EventFile

                self._events = EventFile(run_dir / "tensorboard", frames)
                self._events.add_settings(frames, self._experiment)
            for each in points:
                self._events.add(*each)
        except OSError:
            # Half an event may be there, so the next one goes to a new file.
            self._events = None
            raise

    def _guarded(self, output: str, write: Callable[[], object]) -> None:
        before = self.errors[output]
        # A service that comes and goes is told once.
        level = logging.INFO if output == "wandb" and before else logging.WARNING
        try:
            write()
        except Exception as error:
            self.errors[output] += 1
            if output not in self.failing:
                log.log(
                    level,
                    "cannot write %s (%s: %s%s): training continues without, and tries again each "
                    "interval",
                    output,
                    type(error).__name__,
                    error,
                    f"; {cure(error)}" if _is_shortage(error) else "",
                )
            self.failing.add(output)
        else:
            if output in self.failing:
                log.log(level, "%s is written again", output)
            self.failing.discard(output)


def _is_shortage(error: Exception) -> bool:
    return isinstance(error, OSError | MemoryError) and not isinstance(error, TimeoutError)
