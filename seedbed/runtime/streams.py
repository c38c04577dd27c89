"""The standard streams: open from the first moment on, and stdout for the result of a command."""

import builtins
import contextlib
import os
import sys
import threading
from types import ModuleType
from typing import TextIO

_own: TextIO | None = None
# Duplicates of descriptors 0, 1 and 2 with what they are, and objects of Python, while other code
# runs.
_kept: dict[int, tuple[int, os.stat_result]] = {}
_process = 0
_objects: list[tuple[ModuleType, str, object]] = []


def open_closed() -> None:
    """Open what the caller has closed (`>&-`) on the null device.

    Otherwise the next file or socket of this process would be its stdout or stderr.
    """
    for descriptor, name, flags in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_WRONLY),
        (2, "stderr", os.O_WRONLY),
    ):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, flags)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def keep_stdout() -> None:
    """Keep stdout for `result`: whatever else is printed there goes to stderr from now on.

    So it does from C, from processes that are started, and from the code of a user. Called in the
    process that runs this code.
    """
    global _own, _process
    if _own is None:
        sys.stdout.flush()
        _own = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace", closefd=False)
        os.dup2(2, 1)
        _process = os.getpid()
        for descriptor in range(3):
            _kept[descriptor] = os.dup(descriptor), os.fstat(descriptor)
        for module, name in (
            *((sys, "stdout"), (sys, "stderr"), (sys, "excepthook")),
            *((threading, "excepthook"), (builtins, "print")),
        ):
            _objects.append((module, name, getattr(module, name)))


def keep(descriptor: int) -> None:
    """Keep a standard stream as it is now, if other code runs in this process."""
    if descriptor in _kept:
        os.close(_kept[descriptor][0])
        _kept[descriptor] = os.dup(descriptor), os.fstat(descriptor)


def restore() -> None:
    """Take stdout, stderr and Python's hooks back where other code has closed or replaced them.

    A closed stream would be the next file or socket of this process, into which others print. A
    process that other code has forked, and that comes back here, ends.
    """
    if _kept and os.getpid() != _process:
        os._exit(1)
    for descriptor, (kept, status) in _kept.items():
        try:
            is_open, is_same = True, os.path.samestat(os.fstat(descriptor), status)
        except OSError:
            is_open = is_same = False
        if not is_open or (descriptor and not is_same):
            with contextlib.suppress(OSError):
                os.dup2(kept, descriptor)
    for module, name, value in _objects:
        setattr(module, name, value)


def result() -> TextIO:
    """Return the stream of a command's result."""
    return _own or sys.stdout


def is_one_log() -> bool:
    """Return whether the result and stderr go to one file or pipe: `2>&1`, a log for people."""
    try:
        return os.path.sameopenfile(result().fileno(), 2)
    except (OSError, ValueError):  # closed, or no file
        return False


def drop_result() -> None:
    """Let what is still to be written to the result go nowhere: its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), result().fileno())
