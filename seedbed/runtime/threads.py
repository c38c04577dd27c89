"""Threads that end a process with an exit code when one of them fails."""

import logging
import threading
import time
from collections.abc import Callable

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)

# Longest wait of a thread for work before it checks whether it should stop.
POLL_S = 0.2
# Threads that did not end in time. Python cannot end them, and would wait for some at its end.
left_behind: list[threading.Thread] = []


def leave_at_once() -> None:
    """Let `seedbed` end without the interpreter's own end, which would wait for other processes."""
    left_behind.append(threading.main_thread())


class Threads:
    """Named threads of one part of a process.

    Attributes:
        stopping: Set by the first failure, and by any thread that wants the part to end.
        failure: The first failure; None before.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.failure: SeedbedError | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self, name: str, target: Callable[[], None]) -> None:
        """Run `target` in a thread called `name`."""

        def body() -> None:
            try:
                target()
            except BaseException as error:
                self.fail(name, error)

        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def fail(self, name: str, error: BaseException) -> None:
        """Record the failure of thread `name`, if it is the first one, and set `stopping`."""
        # The message of a SeedbedError explains itself: no traceback.
        expected = isinstance(error, SeedbedError)
        log.error("thread %s failed: %s", name, error, exc_info=None if expected else error)
        if not isinstance(error, SeedbedError):
            text = f"thread {name} failed: {type(error).__name__}: {error}"
            error = SeedbedError(ExitCode.THREAD_FAILED, text)
        with self._lock:
            self.failure = self.failure or error
        self.stopping.set()

    def join_one(self, name: str, timeout_s: float) -> None:
        """Wait for the thread called `name` for `timeout_s` at most."""
        for thread in self._threads:
            if thread.name == name:
                thread.join(timeout_s)

    def join(self, timeout_s: float) -> list[str]:
        """Wait for all threads, `timeout_s` together; return the names of threads still running."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        running = [thread for thread in self._threads if thread.is_alive()]
        left_behind.extend(running)
        return [thread.name for thread in running]
