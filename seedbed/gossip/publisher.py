"""Thread that publishes local updates, so that no update waits for a peer or a disk."""

import contextlib
import queue
from collections.abc import Callable

from seedbed.runtime.threads import POLL_S, Threads

# Events that may wait for this thread: with more of them, training waits.
MAX_EVENTS = 8


class Publisher:
    """Bounded queue of calls. `put` is for the training thread, `run` for a thread of its own.

    Args:
        threads: Threads of this learner; `stopping` ends both.
    """

    def __init__(self, threads: Threads) -> None:
        self._stopping = threads.stopping
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue(MAX_EVENTS)

    def put(self, call: Callable[[], None]) -> None:
        """Hand over a call. Waits while `MAX_EVENTS` are queued."""
        while not self._stopping.is_set():
            with contextlib.suppress(queue.Full):
                self._calls.put(call, timeout=POLL_S)
                return

    def flush(self) -> None:
        """Wait until every call is made."""
        self._calls.join()

    def run(self) -> None:
        """Make the calls, in order, until the learner stops and the queue is empty."""
        while not (self._stopping.is_set() and self._calls.empty()):
            try:
                call = self._calls.get(timeout=POLL_S)
            except queue.Empty:
                continue
            try:
                call()
            finally:
                self._calls.task_done()
