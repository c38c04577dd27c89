"""Lock files, each of one process at a time, which name their holder.

On one host the kernel locks the file. A claim beside it holds between hosts, too.
"""

import fcntl
import logging
import os
import re
import socket
from contextlib import suppress
from pathlib import Path

from seedbed.runtime.claims import Claim, Claimed, this_process
from seedbed.runtime.limits import process_state
from seedbed.runtime.shortage import is_shortage
from seedbed.runtime.text import printable

log = logging.getLogger(__name__)


class LockHeld(Exception):
    """Another process holds a lock. The message names the process and the ways to end it."""


class Lock:
    """A lock of this process, taken at once or not at all. The file is created where it is missing.

    The kernel releases the lock of a process that ends, however it ends; other hosts see that
    after `claims.EXPIRES_S`.

    Args:
        path: The file.
        waits: Wait until it is known whether a process of another host that seems to hold the lock
            still does; else it counts as holding it.

    Attributes:
        file: Descriptor of the file.

    Raises:
        LockHeld: Another process holds the lock.
        OSError: The file cannot be opened, or its file system has no locks.
    """

    def __init__(self, path: Path, waits: bool = True) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._claim = self._taken(path, waits)
        except BaseException:
            os.close(self.file)
            raise
        if left := os.pread(self.file, 512, 0):
            text = printable(left.decode(errors="replace").strip())
            log.warning(
                "%s was locked by %s, which ended without releasing it: taken over", path, text
            )
        # The lock holds without the name, which a full disk may have no room for.
        with suppress(OSError):
            _write(self.file, f"{this_process()}\n")

    def _taken(self, path: Path, waits: bool) -> Claim | None:
        """Take the lock; return the claim, which a full disk may have no room for."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeld(_holder(path, os.pread(self.file, 512, 0))) from None
        try:
            return Claim(path, waits)
        except Claimed as held:
            raise LockHeld(_holder(path, str(held).encode())) from None
        except OSError as error:
            if not is_shortage(error):
                raise
            return None

    def release(self) -> None:
        """Release the lock, and remove this process's name from the file."""
        with suppress(OSError):
            _write(self.file, "")
        if self._claim is not None:
            self._claim.release()
        os.close(self.file)


def holder_of(path: Path) -> tuple[int, str] | None:
    """Return number and host of the process that holds a lock; None where nobody does.

    The lock is taken for a moment: a process that starts then is refused.

    Raises:
        OSError: The file cannot be opened.
    """
    try:
        lock = Lock(path, waits=False)
    except LockHeld:
        return _named(path.read_bytes())
    lock.release()
    return None


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
