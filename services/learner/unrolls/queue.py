"""The short bounded queue between sessions and training. When it is full, actors wait."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from seedbed.replay.sequence import SequenceChunk
from seedbed.services.learner.unrolls.unroll import SessionUnroll

# What a session hands on, without and with replay.
CompletedUnroll = SessionUnroll | SequenceChunk

# Called with the reason, in a word or two, why an unroll will never be trained on.
OnDiscard = Callable[[str], None]


def ignore(_: str) -> None:
    """Do not count what is discarded."""


class UnrollQueue:
    """Queue of session unrolls, first in, first out. The event loop puts, the prefetch thread gets.

    Sizes are in unrolls of single environments. An unroll of E environments is let in while fewer
    than `capacity_unrolls` wait, so that one larger than the capacity cannot deadlock.

    Attributes:
        unrolls: unrolls of single environments that wait.
    """

    def __init__(self, capacity_unrolls: int) -> None:
        self.capacity_unrolls = capacity_unrolls
        self._queued: deque[Any] = deque()
        self.unrolls = 0
        self._changed = threading.Condition()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._dropped_steps = 0

    def try_put(self, unroll: CompletedUnroll) -> bool:
        """Put an unroll if there is room."""
        with self._changed:
            if self.unrolls >= self.capacity_unrolls and not self._closed:
                return False
            self._append(unroll)
            return True

    def _append(self, unroll: CompletedUnroll) -> None:
        if self._closed:
            self._dropped_steps += unroll.steps
            return
        self._queued.append(unroll)
        self.unrolls += unroll.environments
        self._changed.notify()

    async def put(self, unroll: CompletedUnroll, on_discard: OnDiscard = ignore) -> float:
        """Put an unroll, waiting for room. Called in one event loop only; may be cancelled.

        Args:
            unroll: what a session hands on.
            on_discard: called if the unroll will not be trained on. Not called for the steps that
                `close` counts.

        Returns:
            The seconds for which training has made the session wait.
        """
        self._loop = asyncio.get_running_loop()
        since = time.perf_counter()
        try:
            while not self.try_put(unroll):
                await self._wait_for_wake()
        except asyncio.CancelledError:
            on_discard("session ended")
            raise
        return time.perf_counter() - since

    async def _wait_for_wake(self) -> None:
        """Wait until `_wake_putters` is called.

        The caller must have checked its condition in the same iteration of the event loop.
        Otherwise a wake-up can be missed.
        """
        assert self._loop is not None
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def wait(self, timeout_s: float) -> bool:
        """Return whether an unroll waits, after `timeout_s` at the latest."""
        with self._changed:
            if not self._queued and not self._closed:
                self._changed.wait(timeout_s)
            return bool(self._queued)

    def get(self, timeout_s: float) -> Any | None:
        """Return the oldest unroll, or None after `timeout_s` or once the queue is closed."""
        with self._changed:
            if not self.wait(timeout_s):
                return None
            unroll = self._queued.popleft()
            self.unrolls -= unroll.environments
            self._wake_putters()
            return unroll

    def on_trained(self) -> None:
        """Record that a batch has been trained on or discarded. Only synchronous queues wait."""

    def _wake_putters(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nothing waits
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # All waiters try again. There are at most as many as sessions.
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> int:
        """Drop all unrolls, now and later, and return the steps dropped so far.

        No `put` or `get` waits any longer. `close` may be called again.
        """
        with self._changed:
            self._closed = True
            self._dropped_steps += sum(unroll.steps for unroll in self._queued)
            self._queued.clear()
            self.unrolls = 0
            self._changed.notify_all()
            dropped_steps = self._dropped_steps
        self._wake_putters()
        return dropped_steps


class PacedUnrollQueue(UnrollQueue):
    """Unroll queue that lets in what the next batch needs once the one before has been trained on.

    Where a batch makes many updates, batches that wait are many updates old when their turn comes.
    Here only sessions wait, each with one unroll, so that actors and training work at the same
    time and no step is more than a batch and an unroll older than the parameters.

    Args:
        batch_unrolls: B, unrolls of a batch.
    """

    def __init__(self, batch_unrolls: int) -> None:
        super().__init__(batch_unrolls)
        self._room = batch_unrolls

    @override
    def try_put(self, unroll: CompletedUnroll) -> bool:
        with self._changed:
            if self._room <= 0 and not self._closed:
                return False
            self._room -= unroll.environments
            self._append(unroll)
            return True

    @override
    def on_trained(self) -> None:
        with self._changed:
            self._room += self.capacity_unrolls
        self._wake_putters()
