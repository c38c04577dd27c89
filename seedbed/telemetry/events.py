"""TensorBoard events, under the names of the Prometheus metrics.

Written in the caller's thread, one event a tick: a disk that is full raises here, where the run
can say so, and no queue can fill up behind a writer that has died.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import RecordWriter

from seedbed.runtime.metrics import Histogram, Value


class EventFile:
    """One event file of one process, in a directory that TensorBoard reads as a whole."""

    def __init__(self, directory: Path, first_step: int) -> None:
        """Begin a file. What earlier processes wrote at or after `first_step` is no longer shown:
        the run went back to a checkpoint before it.

        Raises:
            OSError: when it cannot be written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        seconds, rest = divmod(time.time_ns(), 1_000_000_000)  # a second file is another one
        name = f"events.out.tfevents.{seconds}.{socket.gethostname()}.{os.getpid()}.{rest}"
        self._writer = RecordWriter(str(directory / name))
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        self._write(
            Event(
                wall_time=time.time(),
                step=first_step,
                session_log=SessionLog(status=SessionLog.START),
            )
        )

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write scalars at `step` (environment frames). NaN is left out."""
        values = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in scalars.items()
            if not math.isnan(value)
        ]
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
        self._writer._writer.flush()  # to the file, without waiting for the disk

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _write(self, event: Event) -> None:
        self._writer.write(event.SerializeToString())


class MetricScalars:
    """Turns the values of metrics into TensorBoard's scalars: `name` or `name/label`.

    Counters and gauges are taken as they are. A histogram becomes the mean of what was added to
    it since the last call, and is left out when nothing was.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int]] = {}

    def take(self, values: Mapping[str, Value]) -> dict[str, float]:
        """The scalars of now."""
        scalars: dict[str, float] = {}
        for name, value in values.items():
            if isinstance(value, Histogram):
                counts, total = value.read()
                total_before, count_before = self._before.get(name, (0.0, 0))
                self._before[name] = total, sum(counts)
                if sum(counts) > count_before:
                    scalars[name] = (total - total_before) / (sum(counts) - count_before)
            elif isinstance(value, Mapping):
                scalars |= {f"{name}/{label}": float(item) for label, item in value.items()}
            else:
                scalars[name] = float(value)
        return scalars
