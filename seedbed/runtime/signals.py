"""Signals that stop a process."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from seedbed.runtime import terminal
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.guard import leaving

# Signals of one request come within this time, also on a busy machine.
_TOGETHER_S = 0.2
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def exit_with_starting_thread() -> None:
    """Let the kernel kill this process when the thread that started it ends, `kill -9` included.

    By SIGKILL, the only signal that ends a process which is stopped, or busy in C. So a killed
    parent costs the frames since the last checkpoint, with one learner as with several, and no
    process is left that holds the run directory.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with(parent: int) -> None:
    """End with the process that started this one, as `exit_with_starting_thread`; now if it has."""
    exit_with_starting_thread()
    if os.getppid() != parent:
        raise SystemExit(ExitCode.OK)


# What a run does on its first signal, for people.
RUN_STOPS = "stopping with a last checkpoint; a second signal ends the run at once"


class Terminated(BaseException):
    """SIGTERM before `on_stop_signals`. A library's `except Exception` does not catch it."""


def exit_on_sigterm() -> None:
    """Raise `Terminated` on SIGTERM, until `on_stop_signals` is called.

    Linux ignores a signal that process 1, the first one of a container, leaves to the default.
    """

    def handler(_: int, __: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, handler)


def interrupt_on_sigint() -> None:
    """Raise `KeyboardInterrupt` on SIGINT, as Python does, and note that the signal has come."""

    def handler(_: int, __: FrameType | None) -> None:
        _Sigint.has_come = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handler)


class _Sigint:
    """Whether SIGINT has come since `interrupt_on_sigint`."""

    has_come = False


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is that of SIGINT, and not one that other code has raised."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    is_main = threading.current_thread() is threading.main_thread()
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return is_main and (is_pythons or _Sigint.has_come)


def exit_at_once_on_signals() -> None:
    """End the process at once on SIGTERM and SIGINT, until `on_stop_signals` is called.

    For a process that has nothing to save yet, and that imports large libraries. An exception from
    a handler would be raised in the middle of such an import, which may swallow it or log it.
    """
    signal.signal(signal.SIGTERM, _exit_at_once)
    signal.signal(signal.SIGINT, _exit_at_once)


def _exit_at_once(number: int, _: FrameType | None) -> None:
    terminal.write(f"seedbed: {signal.Signals(number).name}: ended at once")
    leaving()
    os._exit(128 + number)


@contextmanager
def stop_signals_kept() -> Iterator[None]:
    """Put back the handlers of SIGTERM and SIGINT that other code replaces in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield  # other threads cannot set handlers
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)


def on_stop_signals(
    stop: Callable[[str], None], exit_on_second_signal: bool = True, notice: str = ""
) -> None:
    """Call `stop` with the signal's name on SIGTERM and SIGINT.

    The handler runs in the main thread between two bytecodes, so `stop` must only set things.

    Args:
        stop: Called with `"SIGTERM"` or `"SIGINT"`.
        exit_on_second_signal: End the process at once on a second signal, unless it comes with the
            first one: `timeout` signals its child, then the group. Unset, a second signal calls
            `stop` again: a supervisor may send the same signal twice.
        notice: Line for stderr at the first signal; "" writes none.
    """
    came: dict[int, float] = {}

    def handler(number: int, frame: FrameType | None) -> None:
        name, now = signal.Signals(number).name, time.monotonic()
        if exit_on_second_signal and number in came:
            if now - came[number] > _TOGETHER_S:
                _exit_at_once(number, frame)
            return
        came[number] = now
        if notice:
            terminal.write(f"seedbed: {name}: {notice}")
        stop(name)

    signal.signal(signal.SIGTERM, handler)
    signal.signal(signal.SIGINT, handler)
