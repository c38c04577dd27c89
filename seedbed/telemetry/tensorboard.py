"""TensorBoard events, under the names of the Prometheus metrics.

The events are written in the caller's thread, one event a tick. A full disk raises here, where the
run can report it. tensorboardX's `SummaryWriter` writes in a thread of its own, which ends at the
first error; its queue of ten events then blocks the caller.
"""

import math
import os
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from seedbed.runtime.metrics import Histogram, Value


class EventFile:
    """One event file of one process, in a directory that TensorBoard reads as a whole."""

    def __init__(self, directory: Path, purge_step: int) -> None:
        """Begin a file.

        Args:
            directory: Made if it does not exist.
            purge_step: TensorBoard hides what earlier processes wrote at or after this step,
                because the run went back to a checkpoint before it.

        Raises:
            OSError: The file cannot be written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        # Two files of one second need different names.
        suffix = f".{os.getpid()}.{time.time_ns() % 1_000_000_000}"
        self._writer = EventsWriter(str(directory / "events"), suffix)
        log = SessionLog(status=SessionLog.START)
        self._writer.write_event(Event(wall_time=time.time(), step=purge_step, session_log=log))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write and flush scalars at `step` (environment frames). NaN is left out.

        Args:
            step: Emulator frames so far.
            scalars: Value of each tag; NaN is left out.
        """
        values = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
            if not math.isnan(value)
        ]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        self._writer.write_event(event)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class MetricScalars:
    """Turns the values of metrics into TensorBoard's scalars: `name` or `name/label`.

    Counters and gauges are taken as they are. A histogram becomes the mean of what was added to
    it since the last call, and is left out when nothing was.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int]] = {}

    def take(self, values: Mapping[str, Value]) -> dict[str, float]:
        """Return the present scalars."""
        scalars: dict[str, float] = {}
        for name, value in values.items():
            if isinstance(value, Histogram):
                count, total = value.total()
                total_before, count_before = self._before.get(name, (0.0, 0))
                self._before[name] = total, count
                if count > count_before:
                    scalars[name] = (total - total_before) / (count - count_before)
            elif isinstance(value, Mapping):
                scalars |= {f"{name}/{label}": float(item) for label, item in value.items()}
            else:
                scalars[name] = float(value)
        return scalars
