"""Threads that fail loudly and a process that stops cleanly."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


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


def end_with_parent(number: signal.Signals) -> None:
    """Send this process a signal when the thread that started it ends, even by kill -9."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)


class Terminated(BaseException):
    """SIGTERM before `on_stop_signals`. No `except Exception` of a library swallows it."""


def end_on_sigterm() -> None:
    """Until `on_stop_signals`: SIGTERM ends the process, as the first one of a container too.

    Linux ignores a signal that process 1 leaves to the default.
    """

    def handler(_: int, __: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, handler)


def on_stop_signals(stop: Callable[[str], None], impatient: bool = True) -> None:
    """Call `stop(signal name)` on SIGTERM and SIGINT; a second one ends the process at once.

    Not `impatient`, a second one changes nothing: a process that somebody watches may be sent the
    same signal by both.

    The handler runs in the main thread between two bytecodes, so `stop` must only set things.
    """

    def at_once(number: int, _: FrameType | None) -> None:
        os._exit(128 + number)

    def handler(number: int, _: FrameType | None) -> None:
        if impatient:
            signal.signal(number, at_once)
        stop(signal.Signals(number).name)

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)
