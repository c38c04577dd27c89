"""TensorBoard events: curves, the settings as text, and the settings as hyperparameters.

The events are written in the caller's thread, one event a tick. A full disk raises here, where the
run can report it. tensorboardX's `SummaryWriter` writes in a thread of its own, which ends at the
first error; its queue of ten events then blocks the caller.
"""

import math
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.summary import hparams, text

from seedbed.config.hyperparameters import hyperparameters
from seedbed.config.load import dump_experiment
from seedbed.config.schema import Experiment

# Curves that the table of hyperparameters shows of each run.
TABLE = (
    *("charts/mean_return", "eval/evaluation_mean", "losses/loss"),
    *("speed/run_seconds", "speed/run_dollars"),
)


class EventFile:
    """One event file of one process, in a directory that TensorBoard reads as a whole."""

    def __init__(self, directory: Path, purge_step: int) -> None:
        """Begin a file.

        Args:
            directory: Made if it does not exist.
            purge_step: TensorBoard hides what earlier processes wrote after this step, because the
                run went back to a checkpoint of it.

        Raises:
            OSError: The file cannot be written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        # Two files of one second need different names.
        suffix = f".{os.getpid()}.{time.time_ns() % 1_000_000_000}"
        self._writer = EventsWriter(str(directory / "events"), suffix)
        log = SessionLog(status=SessionLog.START)  # hides its own step too
        self._writer.write_event(Event(wall_time=time.time(), step=purge_step + 1, session_log=log))

    def add_settings(self, step: int, experiment: Experiment) -> None:
        """Write the settings, as YAML and for the table of hyperparameters.

        Args:
            step: Emulator frames so far.
            experiment: Settings of this start.
        """
        yaml = f"```yaml\n{dump_experiment(experiment)}```"
        # Without `session_end_info`, which would call a run that goes on a success.
        table, start, _ = hparams(hyperparameters(experiment), dict.fromkeys(TABLE))
        self._add(step, [*text("settings", yaml).value, *table.value, *start.value])

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write and flush scalars at `step` (environment frames). NaN is left out.

        Args:
            step: Emulator frames so far.
            scalars: Value of each tag; NaN is left out.
        """
        self._add(
            step,
            [
                Summary.Value(tag=tag, simple_value=value)
                for tag, value in scalars.items()
                if not math.isnan(value)
            ],
        )

    def _add(self, step: int, values: Iterable[Summary.Value]) -> None:
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._writer.write_event(event)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
