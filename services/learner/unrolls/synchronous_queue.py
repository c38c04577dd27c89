"""Synchronous batches: one unroll of every environment, all acted by the newest parameters."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.services.learner.unrolls.queue import OnDiscard, UnrollQueue, ignore
from seedbed.services.learner.unrolls.unroll import SessionUnroll
from seedbed.spec import FIRST

log = logging.getLogger(__name__)

STRAGGLER = "late for its round"


class SynchronousUnrollQueue(UnrollQueue):
    """Queue that holds one synchronous batch (Stooke and Abbeel 2018, arXiv:1803.02811).

    `put` returns once the batch has been trained on, so that the parameters of that update answer
    the session's next step. A batch is complete with the unrolls of all expected environments.

    A batch that waits longer than the straggler timeout goes to training without the missing
    environments, the stragglers. Later batches expect only the environments that took part. When a
    straggler returns, its unroll is discarded because older parameters acted in it, and the next
    batch expects the straggler again.

    Args:
        environments: environments of this learner, and unrolls of a batch.
        straggler_timeout_s: longest wait for stragglers since the first unroll of the batch.
        version: returns the version of the newest parameters.
    """

    def __init__(
        self, environments: int, straggler_timeout_s: float, version: Callable[[], int]
    ) -> None:
        super().__init__(environments)
        self._straggler_timeout_s, self._version = straggler_timeout_s, version
        self._expected = environments
        self._first_at: float | None = None  # when the first unroll of the batch came
        self._in_training = False  # a batch has been taken, and is not trained on yet
        self._taken_at = 0.0  # when the newest batch was taken
        self._trained = 0  # batches that have been trained on

    @property
    def missing(self) -> int:
        """Environments that a batch which has begun waits for."""
        return max(0, self._expected - self.unrolls) if self._queued else 0

    @override
    def try_put(self, unroll: Any) -> bool:
        """Return False, because every unroll waits for its batch. A closed queue drops it."""
        with self._changed:
            if self._closed:
                self._append(unroll)
            return self._closed

    @override
    async def put(self, unroll: Any, on_discard: OnDiscard = ignore) -> float:
        self._loop = asyncio.get_running_loop()
        with self._changed:
            came_at, trained = time.perf_counter(), self._trained
            is_straggler = self._is_straggler(unroll)
            if is_straggler:
                # Its environments are back: the next batch expects them.
                self._expected = min(self.capacity_unrolls, self._expected + unroll.environments)
            else:
                self._first_at = self._first_at or came_at
                self._append(unroll)
        if is_straggler:
            on_discard(STRAGGLER)
        try:
            # While a batch is in training, the next one has not begun. A straggler waits for that
            # too, or two versions of the parameters would act in its next unroll.
            while self._trained == trained and (self._in_training or unroll in self._queued):
                await self._wait_for_wake()
        except asyncio.CancelledError:
            if self._withdraw(unroll):
                on_discard("session ended")
            raise
        return max(0.0, time.perf_counter() - max(came_at, self._taken_at))

    def _is_straggler(self, unroll: Any) -> bool:
        if self._closed:
            return False  # dropped with all the others
        return self._in_training or bool((unroll.version != self._version()).any())

    def _withdraw(self, unroll: Any) -> bool:
        """Take an unroll out of the batch. Returns whether the unroll was still there."""
        with self._changed:
            if unroll not in self._queued:
                return False
            self._queued.remove(unroll)
            self.unrolls -= unroll.environments
            if not self._queued:
                self._first_at = None
            return True

    @override
    def get(self, timeout_s: float) -> SessionUnroll | None:
        """Return the next batch as one unroll, or None after `timeout_s` or once closed."""
        end = time.perf_counter() + timeout_s
        with self._changed:
            while not self._closed:
                now = time.perf_counter()
                due = end if self._first_at is None else self._first_at + self._straggler_timeout_s
                if self._queued and (self.unrolls >= self._expected or now >= due):
                    return self._take(now)
                if now >= end:
                    break
                self._changed.wait(min(due, end) - now)
            return None

    def _take(self, now: float) -> SessionUnroll:
        if self.missing:
            log.warning(
                "a round goes without %d of %d environments: they did not come within "
                "learner.straggler_timeout_s %g",
                self.missing,
                self._expected,
                self._straggler_timeout_s,
            )
        unrolls = list(self._queued)
        self._expected = self.unrolls
        self._queued.clear()
        self.unrolls = 0
        self._first_at, self._taken_at, self._in_training = None, now, True
        return joined(unrolls, self.capacity_unrolls)

    @override
    def close(self) -> int:
        with self._changed:
            self._in_training = False
        return super().close()

    @override
    def on_trained(self) -> None:
        """Answer the sessions of the batch: its update is published, or it was discarded."""
        with self._changed:
            self._in_training = False
            self._trained += 1
        self._wake_putters()


def joined(unrolls: Sequence[SessionUnroll], environments: int) -> SessionUnroll:
    """Join unrolls of the same version into one of `environments` environments.

    Missing environments have first steps only, from which no transition is real.

    Args:
        unrolls: at least one.
        environments: environments of the result, those that are missing included.
    """
    like = unrolls[0]
    missing = environments - sum(unroll.environments for unroll in unrolls)
    if len(unrolls) == 1 and not missing:
        return like

    def join(arrays: list[NDArray[Any]], axis: int, fill: int = 0) -> NDArray[Any]:
        shape = list(arrays[0].shape)
        shape[axis] = missing
        return np.concatenate([*arrays, np.full(shape, fill, arrays[0].dtype)], axis)

    return SessionUnroll(
        observation=join([unroll.observation for unroll in unrolls], 1),
        flags=join([unroll.flags for unroll in unrolls], 1, FIRST),
        reward=join([unroll.reward for unroll in unrolls], 1),
        action=join([unroll.action for unroll in unrolls], 1),
        previous_action=join([unroll.previous_action for unroll in unrolls], 0, -1),
        behaviour={
            name: join([unroll.behaviour[name] for unroll in unrolls], 1) for name in like.behaviour
        },
        version=like.version,
        state=join([unroll.state for unroll in unrolls], 0),
    )
