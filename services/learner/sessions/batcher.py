"""Batcher: joins the requests of sessions into inference batches."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import StepInputs

# Longest time for which computed outputs wait for a thread that waits for requests.
_READY_POLL_S = 2e-4

# Action [E], behaviour [E, ...] each, parameter version, recurrent state [E, S] before the step.
SetOutputs = Callable[
    [NDArray[np.int32], dict[str, NDArray[Any]], int, NDArray[np.float32] | None], None
]


@dataclass(eq=False, slots=True)
class Request:
    """Newest step of a session, which waits for its actions.

    Attributes:
        inputs: the step, for inference.
        num_envs: E.
        needs_state: whether `set_outputs` takes the recurrent state before the step.
        set_outputs: receives the outputs, in the inference thread.
        on_done: called in the event loop once the outputs are set.
        arrived: `time.perf_counter()` of the submission.
        action: the reply to the actor, [E] int32.
        done: whether `on_done` was called.
        post: sends the reply from the inference thread; None where only the event loop can.
    """

    inputs: StepInputs
    num_envs: int
    needs_state: bool
    set_outputs: SetOutputs
    on_done: Callable[[], None]
    arrived: float = field(default_factory=time.perf_counter)
    action: bytes | None = None
    done: bool = False
    post: Callable[[bytes], None] | None = None


class AtOnce(Protocol):
    """Computes a batch in the thread that submits its last request."""

    def is_short(self, sessions: int, num_envs: int) -> bool:
        """Return whether a batch should not change threads, as one that is short."""

    def compute(self, batch: list[Request]) -> None:
        """Compute a batch, and send its actions. Never raises."""


class Batcher:
    """Queue of requests between the event loop and the inference thread.

    A batch is taken as soon as it is full, or contains every session that could join it, or its
    oldest request has waited `max_wait_s`. Sessions of a batch in flight cannot join the next one.

    Args:
        target: environments of a full batch. 0 means half of the connected ones, because the two
            groups of an actor alternate.
        max_batch: most environments of a batch.
        max_wait_s: longest wait of a request for others.

    Attributes:
        at_once: computes short batches in the thread that submits; None where none does.
    """

    def __init__(self, target: int, max_batch: int, max_wait_s: float) -> None:
        self._target = target
        self._max_batch = max_batch
        self._max_wait_s = max_wait_s
        self._requests: list[Request] = []
        self._waiting_envs = 0
        self._sessions = 0
        self._num_envs = 0
        self._paused = 0
        self._in_flight = 0
        self._taken_at = time.perf_counter()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._closed = False
        self.at_once: AtOnce | None = None
        self._is_lent = False  # to `at_once`, so that the inference thread takes no batch

    def _full(self) -> bool:
        target = self._target or max(1, self._num_envs // 2)
        held = self._paused + self._in_flight
        all_joined = len(self._requests) + held >= self._sessions
        return self._waiting_envs >= min(target, self._max_batch) or all_joined

    def submit(self, request: Request) -> None:
        """Queue a request. Wakes the inference thread only if that changes its deadline.

        Computes the batch that the request completes, if that is short and nothing is in flight.
        """
        with self._lock:
            self._requests.append(request)
            self._waiting_envs += request.num_envs
            is_full = self._full()
            if not (is_full and self._may_compute()):
                if is_full or len(self._requests) == 1:
                    self._changed.notify()
                return
            self._is_lent = True
            batch = self._pop()
        assert self.at_once is not None
        self.at_once.compute(batch)
        with self._lock:
            self._in_flight -= len(batch)
            self._is_lent = False
            if self._requests:
                self._changed.notify()

    def _may_compute(self) -> bool:
        # Paused sessions may go on together, with this one, and are one batch then.
        if self.at_once is None or self._closed or self._in_flight or self._paused:
            return False
        return self.at_once.is_short(self._sessions, self._waiting_envs)

    def cancel(self, request: Request) -> bool:
        """Remove a request. Returns False if it is in a batch already."""
        with self._lock:
            if request not in self._requests:
                return False
            self._requests.remove(request)
            self._waiting_envs -= request.num_envs
            return True

    def set_connected(self, sessions: int, num_envs: int) -> None:
        """Set what could join a batch."""
        with self._lock:
            self._sessions, self._num_envs = sessions, num_envs
            self._changed.notify()

    def pause(self) -> None:
        """Count one session that cannot join a batch, because the unroll queue is full."""
        with self._lock:
            self._paused += 1
            self._changed.notify()

    def resume(self) -> None:
        """Undo one `pause`."""
        with self._lock:
            self._paused -= 1
            self._changed.notify()

    def on_done(self, batch: list[Request]) -> None:
        """Count the sessions of a batch as ones that can join the next one.

        Args:
            batch: what `take` returned, with its actions.
        """
        with self._lock:
            self._in_flight -= len(batch)

    @property
    def depth(self) -> int:
        """Number of waiting requests."""
        return len(self._requests)

    def oldest_wait_s(self) -> float:
        """Return how long the oldest request has waited since a batch was last taken."""
        with self._lock:
            if not self._requests:
                return 0.0
            return time.perf_counter() - max(self._requests[0].arrived, self._taken_at)

    def take(self, timeout_s: float, ready: Callable[[], bool] | None = None) -> list[Request]:
        """Return the next batch; empty after `timeout_s` without a request, or once closed.

        Args:
            timeout_s: longest wait without a request.
            ready: ends the wait for a batch that is not due, once it returns True.
        """
        deadline = time.perf_counter() + timeout_s
        with self._lock:
            while not self._closed:
                now = time.perf_counter()
                until = deadline
                if self._requests and not self._is_lent:
                    until = self._requests[0].arrived + self._max_wait_s
                    if self._full() or now >= until:
                        return self._pop()
                elif now >= deadline:
                    break
                if ready is None:
                    self._changed.wait(until - now)
                elif ready():
                    break
                else:
                    self._changed.wait(min(until - now, _READY_POLL_S))
            return []

    def _pop(self) -> list[Request]:
        """Return whole requests, oldest first, up to `max_batch` environments."""
        batch: list[Request] = []
        num_envs = 0
        for request in self._requests:
            if batch and num_envs + request.num_envs > self._max_batch:
                break
            batch.append(request)
            num_envs += request.num_envs
        del self._requests[: len(batch)]
        self._waiting_envs -= num_envs
        self._in_flight += len(batch)
        self._taken_at = time.perf_counter()
        return batch

    def close(self) -> None:
        """Make `take` return."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
