"""The lock of a run directory, which one process holds."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from seedbed.runs import RunDirectoryError
from seedbed.runtime.files import lock_file

LOCK = "seedbed.lock"


def acquire(path: Path) -> int:
    """Take the lock of a run directory, and make the directory where it is missing.

    Returns:
        The file descriptor that holds the lock. The kernel releases the lock when the process
        ends.

    Raises:
        SeedbedError: RUN_DIRECTORY: another process holds the lock, or the directory cannot be
            used.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / LOCK).touch()
    except OSError as error:
        raise RunDirectoryError(
            f"cannot make the run directory {path}: {error.strerror}"
        ) from error
    try:
        lock = lock_file(path / LOCK)
    except BlockingIOError as error:
        holder = (path / LOCK).read_text(errors="replace").strip() or "another process"
        raise RunDirectoryError(
            f"the run directory {path} is in use by {holder}: stop it, or choose another --run-dir"
        ) from error
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be locked ({error.strerror}): choose a --run-dir on a local disk"
        ) from error
    if not _is_at(lock, path):
        os.close(lock)
        raise RunDirectoryError(
            f"the run directory {path} was moved while it was opened, by a --restart fresh: "
            "run the same command again"
        )
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return lock


def _is_at(lock: int, path: Path) -> bool:
    try:
        there = (path / LOCK).stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(lock), there)
