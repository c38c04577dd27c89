"""Rounds: batches of one unroll of every environment, all acted by the newest parameters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.services.learner.unrolls.queue import Finished, Lost, UnrollQueue, ignore
from seedbed.services.learner.unrolls.unroll import SessionUnroll
from seedbed.spec import FIRST

log = logging.getLogger(__name__)

LATE = "late for its round"


class SynchronousUnrollQueue(UnrollQueue):
    """Takes the place of the queue for synchronous agents (Stooke and Abbeel 2018).

    `put` ends when its round has been trained on, so that the session's next row is answered by
    the parameters that the round has made. A round goes to training as one block of all columns,
    when it has those of every environment that is `expected`; or without them `deadline_s` after
    its first block. Then so many are expected as there were, until who was missing comes back:
    with a block that parameters of before have acted, which is refused, and raises the number.

    Args:
        columns: environments of the learner, columns of a training batch.
        deadline_s: how long a round waits for them, in seconds.
        version: the newest parameters' version.
    """

    def __init__(self, columns: int, deadline_s: float, version: Callable[[], int]) -> None:
        super().__init__(columns)
        self._deadline_s, self._version = deadline_s, version
        self._expected = columns
        self._first_at: float | None = None  # when the round's first block came
        self._is_out = False  # a round has been taken, and is not trained on yet
        self._taken_at = 0.0  # when the last one was
        self._released = 0  # rounds that have been trained on

    @property
    def missing(self) -> int:
        """Environments that a round which has begun still waits for."""
        return max(0, self._expected - self._columns) if self._blocks else 0

    def try_put(self, block: Finished) -> bool:
        """False: every block waits for its round. Once closed it is dropped, and nobody waits."""
        with self._changed:
            if self._closed:
                self._append(block)
            return self._closed

    async def put(self, block: Any, lost: Lost = ignore) -> float:
        """Put a block into the round, and wait until the round has been trained on."""
        self._loop = asyncio.get_running_loop()
        with self._changed:
            came_at, mine = time.perf_counter(), self._released
            is_late = self._is_late(block)
            if is_late:
                # Its environments are back: from the next round on they are waited for.
                self._expected = min(self.capacity_columns, self._expected + block.environments)
            else:
                self._first_at = self._first_at or came_at
                self._append(block)
        if is_late:
            lost(LATE)
        try:
            # While a round is out the next one has not begun: even who is late waits for that, or
            # its next block would be acted by the parameters of both.
            while self._released == mine and (self._is_out or block in self._blocks):
                await self._wait()
        except asyncio.CancelledError:
            if self._withdraw(block):
                lost("session ended")
            raise
        return max(0.0, time.perf_counter() - max(came_at, self._taken_at))

    def _is_late(self, block: Any) -> bool:
        if self._closed:
            return False  # it is dropped with all the others
        return self._is_out or bool((block.version != self._version()).any())

    def _withdraw(self, block: Any) -> bool:
        """Whether the block was still there to be taken back."""
        with self._changed:
            if block not in self._blocks:
                return False
            self._blocks.remove(block)
            self._columns -= block.environments
            if not self._blocks:
                self._first_at = None
            return True

    def get(self, timeout_s: float) -> Any | None:
        """The next round as one block, or None after `timeout_s` or once closed."""
        end = time.perf_counter() + timeout_s
        with self._changed:
            while not self._closed:
                now = time.perf_counter()
                due = end if self._first_at is None else self._first_at + self._deadline_s
                if self._blocks and (self._columns >= self._expected or now >= due):
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
                *(self.missing, self._expected, self._deadline_s),
            )
        blocks: list[Any] = [*self._blocks]
        self._expected = self._columns
        self._blocks.clear()
        self._columns = 0
        self._first_at, self._taken_at, self._is_out = None, now, True
        return joined(blocks, self.capacity_columns)

    def close(self) -> int:
        """As `UnrollQueue.close`. A round that is out holds nobody any more."""
        with self._changed:
            self._is_out = False
        return super().close()

    def release(self) -> None:
        """The round that was taken has been trained on, and its parameters are published."""
        with self._changed:
            self._is_out = False
            self._released += 1
        self._wake_putters()


def joined(blocks: Sequence[SessionUnroll], columns: int) -> SessionUnroll:
    """Blocks of the same version as one of `columns` columns. Those that are missing are first
    rows only, from which no transition is real.
    """
    like = blocks[0]
    missing = columns - sum(block.environments for block in blocks)
    if len(blocks) == 1 and not missing:
        return like

    def join(arrays: list[NDArray[Any]], axis: int, fill: int = 0) -> NDArray[Any]:
        shape = list(arrays[0].shape)
        shape[axis] = missing
        return np.concatenate([*arrays, np.full(shape, fill, arrays[0].dtype)], axis)

    return SessionUnroll(
        observation=join([block.observation for block in blocks], 1),
        flags=join([block.flags for block in blocks], 1, FIRST),
        reward=join([block.reward for block in blocks], 1),
        action=join([block.action for block in blocks], 1),
        previous_action=join([block.previous_action for block in blocks], 0, -1),
        behaviour={
            name: join([block.behaviour[name] for block in blocks], 1) for name in like.behaviour
        },
        version=like.version,
        state=join([block.state for block in blocks], 0),
    )
