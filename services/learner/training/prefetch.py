"""The prefetch thread: from the unroll queue to the batch source, ahead of training."""

from __future__ import annotations

import threading
import time
from typing import Any

from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.unrolls.queue import UnrollQueue
from seedbed.telemetry import Telemetry


class PrefetchThread:
    """Inserts unrolls into the batch source, and builds the next batch while training is busy."""

    def __init__(self, queue: UnrollQueue, telemetry: Telemetry) -> None:
        self._queue = queue
        self._telemetry = telemetry
        self._updates = -1
        self._progress_at = time.perf_counter()

    def probe(self, limit_s: float) -> str | None:
        """Return why no unroll has reached training for `limit_s`, or None. Main thread."""
        now, updates = time.perf_counter(), self._telemetry.counters.updates
        full = self._queue.unrolls >= self._queue.capacity_unrolls
        training_idle = self._telemetry.busy["training"].state[0] == "idle"
        if updates != self._updates or not (full and training_idle):
            self._updates, self._progress_at = updates, now
        elif now - self._progress_at > limit_s:
            waited_s, unrolls = now - self._progress_at, self._queue.unrolls
            return f"prefetch handed on nothing for {waited_s:.0f} s with {unrolls} unrolls waiting"
        return None

    def run(self, components: LearnerComponents, stopping: threading.Event) -> None:
        """Insert and prefetch until `stopping` is set."""
        source, busy = components.source, self._telemetry.busy["prefetch"]
        try:
            while not stopping.is_set():
                waiting = self._queue.wait(source.idle_s)
                if waiting and source.wait_until_insertable(busy, stopping):
                    unroll = self._queue.get(POLL_S)
                    if unroll is not None:
                        with busy:
                            self.insert(components, unroll)
                source.prefetch(busy, stopping)
        finally:
            source.close()

    def insert(self, components: LearnerComponents, unroll: Any) -> None:
        """Insert what a session has completed, and count the frames that went into replay."""
        frames = components.source.insert(unroll) * components.spec.action_repeat
        self._telemetry.counters.inserted_frames += frames
