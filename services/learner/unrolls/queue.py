"""The short bounded queue between sessions and training. When it is full, inference waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol


class Finished(Protocol):
    """What a session hands on: a `SessionUnroll`, or a `SequenceChunk` for replay."""

    @property
    def environments(self) -> int: ...
    @property
    def steps(self) -> int: ...


Lost = Callable[[str], None]  # told why a block will never be trained on, in a word or two


def ignore(_: str) -> None:
    """Where nobody counts what is lost."""


class UnrollQueue:
    """Blocks, first in first out. The event loop puts, the prefetch thread gets.

    Capacity is in columns (environments). A block is let in while the queue holds fewer columns
    than its capacity, so that a block larger than the capacity cannot deadlock.
    """

    def __init__(self, capacity_columns: int) -> None:
        self.capacity_columns = capacity_columns
        self._blocks: deque[Finished] = deque()
        self._columns = 0
        self._changed = threading.Condition()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._dropped_steps = 0

    @property
    def columns(self) -> int:
        """Columns that wait."""
        return self._columns

    def try_put(self, block: Finished) -> bool:
        """Put a block if there is room."""
        with self._changed:
            if self._columns >= self.capacity_columns and not self._closed:
                return False
            self._append(block)
            return True

    def _append(self, block: Finished) -> None:
        if self._closed:
            self._dropped_steps += block.steps
            return
        self._blocks.append(block)
        self._columns += block.environments
        self._changed.notify()

    async def put(self, block: Finished, lost: Lost = ignore) -> float:
        """Put a block, waiting for room. Called in one event loop only; may be cancelled.

        Args:
            block: what a session hands on.
            lost: called if the block will not be trained on, but not for what `close` counts.

        Returns:
            The seconds in which training held the session up.
        """
        self._loop = asyncio.get_running_loop()
        since = time.perf_counter()
        try:
            while not self.try_put(block):
                await self._wait()
        except asyncio.CancelledError:
            lost("session ended")
            raise
        return time.perf_counter() - since

    async def _wait(self) -> None:
        """Until `_wake_putters`. What that tells must have been looked at in this very turn of
        the event loop: it wakes in a later one.
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
        """Whether a block is there, at the latest after `timeout_s`."""
        with self._changed:
            if not self._blocks and not self._closed:
                self._changed.wait(timeout_s)
            return bool(self._blocks)

    def get(self, timeout_s: float) -> Any | None:
        """The oldest block, or None after `timeout_s` or once closed."""
        with self._changed:
            if not self._blocks and not self._closed:
                self._changed.wait(timeout_s)
            if not self._blocks:
                return None
            block = self._blocks.popleft()
            self._columns -= block.environments
            self._wake_putters()
            return block

    def _wake_putters(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # Everyone who waits tries again; at most as many as there are sessions.
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> int:
        """Let everybody go, drop what waits and what still comes; return the steps dropped so far.

        It may be called again.
        """
        with self._changed:
            self._closed = True
            self._dropped_steps += sum(block.steps for block in self._blocks)
            self._blocks.clear()
            self._columns = 0
            self._changed.notify_all()
            dropped = self._dropped_steps
        self._wake_putters()
        return dropped
