"""Liveness: a part that has had work in front of it and taken none for too long."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

if TYPE_CHECKING:
    from seedbed.services.learner.learner import Learner


class Stuck:
    """Looks at the threads' work. No actors, or a first compile, is never stuck."""

    def __init__(self, timeout_s: float, learner: Learner) -> None:
        self._timeout_s = timeout_s
        self._learner = learner
        self._updates = -1
        self._updated = time.perf_counter()

    def check(self) -> None:
        """Fail the learner if a part is stuck, naming the part and what it had to do."""
        cause = self.cause()
        if cause is not None:
            self._learner.threads.fail(
                "watchdog",
                SeedbedError(
                    ExitCode.THREAD_STUCK,
                    f"{cause} (learner.watchdog_timeout_s is {self._timeout_s:g})",
                ),
            )

    def cause(self) -> str | None:
        """What is stuck, in words, or None."""
        learner, now = self._learner, time.perf_counter()
        if not learner.model.is_built:
            return None
        batch_since, step_since = learner.inference.batch_since, learner.training.step_since
        if batch_since is not None and now - batch_since > self._timeout_s:
            return f"inference has worked on one batch for {now - batch_since:.0f} s"
        if step_since is not None and now - step_since > self._timeout_s:
            return f"training has worked on one step for {now - step_since:.0f} s"
        waited = learner.batcher.oldest_wait_s()
        if waited > self._timeout_s and learner.telemetry.busy["inference"].state[0] == "idle":
            return f"inference took no batch for {waited:.0f} s with a request waiting"
        full = learner.queue.columns >= learner.queue.capacity_columns
        training_idle = learner.telemetry.busy["training"].state[0] == "idle"
        if learner.counters.updates != self._updates or not (full and training_idle):
            self._updates, self._updated = learner.counters.updates, now
        elif now - self._updated > self._timeout_s:
            return (
                f"prefetch handed on nothing for {now - self._updated:.0f} s with "
                f"{learner.queue.columns} unrolls waiting"
            )
        return None
