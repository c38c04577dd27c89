"""What only one process may have: the lock of a run directory, and its unix socket's path."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from pathlib import Path

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import lock_file

LOCK = "seedbed.lock"
_SOCKET_PATH_BYTES = 107  # sun_path has 108, the last is NUL (unix(7))


def acquire(path: Path) -> int:
    """Take the lock of a run directory, and make the directory where it is missing.

    Returns the file descriptor that holds it. The kernel gives it back when the process ends.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / LOCK).touch()
    except OSError as error:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY, f"cannot make the run directory {path}: {error.strerror}"
        ) from error
    try:
        lock = lock_file(path / LOCK)
    except BlockingIOError as error:
        holder = (path / LOCK).read_text(errors="replace").strip() or "another process"
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"the run directory {path} is in use by {holder}: stop it, or choose another --run-dir",
        ) from error
    except OSError as error:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"{path} cannot be locked ({error.strerror}): choose a --run-dir on a local disk",
        ) from error
    if not _is_at(lock, path):
        os.close(lock)
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"the run directory {path} was moved while it was opened, by a --restart fresh: "
            "run the same command again",
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


def socket_path(path: Path) -> Path:
    """`path/learner.sock`, or a short one in the temporary directory that only this user enters.

    Raises:
        SeedbedError: even that is too long, or belongs to someone else.
    """
    own = path / "learner.sock"
    if len(os.fsencode(own)) <= _SOCKET_PATH_BYTES:
        return own
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    short = Path(tempfile.gettempdir()) / f"seedbed-{os.getuid()}-{digest}"
    size = len(os.fsencode(short / "learner.sock"))
    if size > _SOCKET_PATH_BYTES:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"a unix socket's path has at most {_SOCKET_PATH_BYTES} bytes: {own} has "
            f"{len(os.fsencode(own))}, and {short} has {size}: choose a shorter --run-dir",
        )
    short.mkdir(mode=0o700, exist_ok=True)
    status = short.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or short.is_symlink():
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"{short} is open to other users (owner {status.st_uid}, mode "
            f"{status.st_mode & 0o777:o}): delete it, or choose a shorter --run-dir",
        )
    return short / "learner.sock"
