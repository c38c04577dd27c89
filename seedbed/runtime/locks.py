"""Lock files, each of one process at a time, which name their holder."""

import fcntl
import logging
import os
import re
import socket
from contextlib import suppress
from pathlib import Path

from seedbed.runtime.limits import process_state
from seedbed.runtime.text import printable

log = logging.getLogger(__name__)


class LockHeld(Exception):
    """Another process holds a lock. The message names the process and the ways to end it."""


def take_lock(path: Path) -> int:
    """Lock a file for this process, and create it where it is missing.

    The kernel releases the lock of a process that ends, however it ends.

    Returns:
        A file descriptor for `release_lock`.

    Raises:
        LockHeld: Another process holds the lock.
        OSError: The file cannot be opened, or its file system has no locks.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        holder = _holder(path, os.pread(file, 512, 0))
        os.close(file)
        if isinstance(error, BlockingIOError):
            raise LockHeld(holder) from None
        raise
    if left := os.pread(file, 512, 0):
        text = printable(left.decode(errors="replace").strip())
        log.warning("%s was locked by %s, which ended without releasing it: taken over", path, text)
    # The lock holds without the name, which a full disk may have no room for.
    with suppress(OSError):
        _write(file, f"process {os.getpid()} on {socket.gethostname()}\n")
    return file


def holder_of(path: Path) -> tuple[int, str] | None:
    """Return number and host of the process that holds a lock; None where nobody does.

    The lock is taken for a moment: a process that starts then is refused.

    Raises:
        OSError: The file cannot be opened.
    """
    try:
        lock = take_lock(path)
    except LockHeld:
        return _named(path.read_bytes())
    release_lock(lock)
    return None


def release_lock(file: int) -> None:
    """Release a lock, and remove this process's name from the file.

    Args:
        file: descriptor of the lock's file.
    """
    with suppress(OSError):
        _write(file, "")
    os.close(file)


def _write(file: int, text: str) -> None:
    """Replace the content of a lock's file, and keep its time: a lock is no change of a run."""
    before = os.fstat(file)
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _named(content: bytes) -> tuple[int, str] | None:
    """Return number and host of the process that a lock's file names."""
    found = re.fullmatch(
        r"process (\d+) on (.+)", printable(content.decode(errors="replace").strip())
    )
    return (int(found[1]), found[2]) if found else None


def _holder(path: Path, content: bytes) -> str:
    """Describe the holder of a lock, and the ways to end it."""
    named = _named(content)
    if named is None:
        return f"another process: stop it (`fuser {path}` shows its number)"
    pid, host = named
    text = f"process {pid} on {host}"
    if host != socket.gethostname():
        return f"{text}: stop it there"
    match process_state(pid):
        case None | "Z":
            return (
                f"a process that {text} started before it ended: stop it (`fuser {path}` shows its "
                "number)"
            )
        case "T" | "t":
            return (
                f"{text}, which is stopped: continue it with `kill -CONT {pid}`, or end it with "
                f"`kill -9 {pid}`"
            )
    return f"{text}: stop it with `kill {pid}`"
