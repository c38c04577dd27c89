"""Shortages of space, descriptors and memory: their cures, and descriptors kept in reserve."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.paths import shown

_T = TypeVar("_T")

# A file is open while the name of another one is written; the others are for other threads.
_SPARE = 4
_ROOM = "free or enlarge the volume"
# Errors of a volume on which nothing can be written, until somebody makes room.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_CURES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: f"{_ROOM}, or its quota",
    errno.EFBIG: f"no file may become that large here: raise the limit (ulimit -f), or {_ROOM}",
    errno.EROFS: "the volume is read-only: mount it for writing, or name another directory",
    errno.EMFILE: "this process has too many files and connections open: raise its limit "
    "(ulimit -n), and see which clients hold idle connections",
    errno.ENFILE: "this machine has too many files open: raise its limit (fs.file-max), or end "
    "other processes",
    errno.ENOMEM: "memory is short: raise the limit of this process or of its container",
}
_OTHERWISE = "see that the directory is there, and that this process may write to it"
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)

_spare: list[int] = []
_wanted = 0


def cure(error: BaseException) -> str:
    """Return what helps against a failure to read or write a file."""
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
    return _CURES.get(number or 0, _OTHERWISE)


def is_shortage(error: OSError) -> bool:
    """Tell whether a failure is of a volume or of rights, and of no code.

    Args:
        error: of a file, or of a pipe.
    """
    return error.errno in {*_CURES, errno.EACCES, errno.EPERM}


def cannot_write(file: Path, error: OSError) -> SeedbedError:
    """Return the refusal of a file that a command was to write, with the cure.

    Args:
        file: that was to be written.
        error: why it was not.
    """
    why = error.strerror or str(error).partition("\n")[0]
    return SeedbedError(ExitCode.OUTPUT, f"cannot write {shown(file)}: {why}; {cure(error)}")


def will_pass(error: BaseException) -> bool:
    """Tell whether a failure says nothing of the file: descriptors or memory have run out."""
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno in (*_NO_DESCRIPTOR, errno.ENOMEM)
    )


def keep_spare_descriptors() -> None:
    """Keep descriptors for `with_spare` from now on."""
    global _wanted
    _wanted = _SPARE
    refill()


def refill() -> None:
    """Open again the spare descriptors that were used, as far as there are any."""
    with suppress(OSError):
        while len(_spare) < _wanted:
            _spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def with_spare(open_one: Callable[[], _T]) -> _T:
    """Call a function that opens one file, with a spare descriptor where no other is left.

    Args:
        open_one: it may be called twice, and may return the open file.

    Raises:
        OSError: the file cannot be opened, or not even a spare descriptor is left.
    """
    refill()
    try:
        return open_one()
    except OSError as error:
        if error.errno not in _NO_DESCRIPTOR or not _spare:
            raise
    os.close(_spare.pop())
    try:
        return open_one()
    finally:
        refill()
