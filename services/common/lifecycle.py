"""Threads that fail loudly and a process that stops cleanly."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from services.common.exit_codes import ExitCode, SeedbedError

log = logging.getLogger("seedbed")


class Threads:
    """The named threads of a part. The first one that fails is what the part failed of.

    `stopping` is set by whoever wants the part to end, and by the first failure.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.failure: SeedbedError | None = None
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self, name: str, target: Callable[[], None]) -> None:
        """Run `target` in a thread of that name."""

        def body() -> None:
            try:
                target()
            except BaseException as error:
                self.fail(name, error)

        thread = threading.Thread(target=body, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def fail(self, name: str, error: BaseException) -> None:
        """Record a failure (the first one counts) and stop."""
        # What is said in a sentence needs no traceback.
        expected = isinstance(error, SeedbedError)
        log.error("thread %s failed: %s", name, error, exc_info=None if expected else error)
        with self._lock:
            if self.failure is None:
                if isinstance(error, SeedbedError):
                    self.failure = error
                else:
                    self.failure = SeedbedError(
                        ExitCode.THREAD_FAILED,
                        f"thread {name} failed: {type(error).__name__}: {error}",
                    )
        self.stopping.set()

    def join(self, timeout_s: float) -> list[str]:
        """Wait for all threads, `timeout_s` in all; return the names of those that still run."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]


def on_stop_signals(stop: Callable[[str], None]) -> None:
    """Call `stop(signal name)` on SIGTERM and SIGINT; a second one ends the process at once.

    The handler runs in the main thread between two bytecodes, so `stop` must only set things.
    """

    def handler(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop(signal.Signals(number).name)

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)
