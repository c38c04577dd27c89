"""Joins the requests of sessions into batches: full, or everyone is here, or waited enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from seedbed.services.learner.sessions.session import Session


@dataclass(eq=False)
class Request:
    """A session's newest row, waiting for its actions."""

    session: Session
    rows: int
    arrived: float = field(default_factory=time.perf_counter)
    action: bytes | None = None  # the answer: [E] int32
    done: bool = False
    on_done: Callable[[], None] | None = None  # set when the session went in the meantime


class Batcher:
    """The event loop submits, the inference thread takes.

    A batch goes as soon as its target is reached, or nobody who could join it soon is missing,
    or its oldest request has waited `max_wait_s`; never later.

    Args:
        target: rows at which a batch is full, asked for each time (0: half of those connected,
            because the two groups of an actor alternate).
    """

    def __init__(self, target: int, max_batch: int, max_wait_s: float) -> None:
        self._target = target
        self._max_batch = max_batch
        self._max_wait_s = max_wait_s
        self._requests: list[Request] = []
        self._rows = 0
        self._sessions = 0
        self._environments = 0
        self._held = 0
        self._taken_at = time.perf_counter()
        self._changed = threading.Condition()
        self._closed = False

    def _full(self) -> bool:
        target = self._target or max(1, self._environments // 2)
        everyone = len(self._requests) + self._held >= self._sessions
        return self._rows >= min(target, self._max_batch) or everyone

    def submit(self, request: Request) -> None:
        """Queue a request. Wakes the inference thread only if that changes what it waits for."""
        with self._changed:
            self._requests.append(request)
            self._rows += request.rows
            if len(self._requests) == 1 or self._full():
                self._changed.notify()

    def cancel(self, request: Request) -> bool:
        """Take a request back; False if it is in a batch already."""
        with self._changed:
            if request not in self._requests:
                return False
            self._requests.remove(request)
            self._rows -= request.rows
            return True

    def connected(self, sessions: int, environments: int) -> None:
        """How many sessions and environments could join a batch at all."""
        with self._changed:
            self._sessions, self._environments = sessions, environments
            self._changed.notify()

    def held(self, change: int) -> None:
        """Sessions that wait for room in the unroll queue cannot join: do not wait for them."""
        with self._changed:
            self._held += change
            self._changed.notify()

    @property
    def depth(self) -> int:
        """Requests that wait."""
        return len(self._requests)

    def oldest_wait_s(self) -> float:
        """How long the oldest request has waited since a batch was last taken, in seconds."""
        with self._changed:
            if not self._requests:
                return 0.0
            return time.perf_counter() - max(self._requests[0].arrived, self._taken_at)

    def take(self, timeout_s: float) -> list[Request]:
        """The next batch; empty after `timeout_s` without any request, or once closed."""
        deadline = time.perf_counter() + timeout_s
        with self._changed:
            while not self._closed:
                now = time.perf_counter()
                if self._requests:
                    due = self._requests[0].arrived + self._max_wait_s
                    if self._full() or now >= due:
                        return self._pop()
                    self._changed.wait(due - now)
                elif now >= deadline:
                    break
                else:
                    self._changed.wait(deadline - now)
            return []

    def _pop(self) -> list[Request]:
        batch: list[Request] = []
        rows = 0
        for request in self._requests:  # whole requests, oldest first
            if batch and rows + request.rows > self._max_batch:
                break
            batch.append(request)
            rows += request.rows
        del self._requests[: len(batch)]
        self._rows -= rows
        self._taken_at = time.perf_counter()
        return batch

    def close(self) -> None:
        """Let the inference thread go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
