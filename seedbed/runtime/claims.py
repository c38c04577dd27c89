"""Claims: who uses a folder, for hosts whose shared file system does not lock across them.

A claim is a file NAME.N beside the file NAME. One process makes it in one atomic step, with its
number, host and kernel, and renews it until it releases it. A claim that has not been renewed for
`EXPIRES_S` belongs to a host that is gone: whoever makes NAME.N+1 has taken it over. Ages are
differences between times of the file server, so that clocks of hosts may differ.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from seedbed.runtime import terminal
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.guard import leaving
from seedbed.runtime.limits import read_or_empty
from seedbed.runtime.text import printable

log = logging.getLogger(__name__)

EXPIRES_S = 30.0
RENEWED_S = 5.0
_LOOK_S = 0.2


class Claimed(Exception):
    """A process of another host has the claim. The message names it: `process N on HOST`."""


class _Found(NamedTuple):
    number: int
    owner: str  # empty while the claim is being written
    kernel: str
    renewed: float  # by the file server's clock


class Claim:
    """A claim of this process.

    Args:
        path: File beside which the claim lies. The caller has locked it on this host.
        waits: Wait for a claim of another host to be renewed or to expire; else it counts as
            renewed.

    Raises:
        Claimed: Another host has the claim.
        OSError: The folder cannot be written to.
    """

    def __init__(self, path: Path, waits: bool) -> None:
        self._name = path.name
        # It holds for the folder wherever it is moved to.
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._file = -1
        try:
            while self._file < 0:
                before = self._expired(waits)
                self._make(before)
        except BaseException:
            os.close(self._folder)
            raise
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="claim", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Remove the claim, if it is still this process's."""
        self._released.set()
        self._thread.join()
        self._remove()
        os.close(self._folder)

    def _renew(self) -> None:
        """Renew the claim until it is released; end the process where another host has taken it."""
        while not self._released.wait(RENEWED_S):
            with suppress(OSError):  # a server that is away: nobody can write there meanwhile
                os.utime(self._file)
                newest = max(self._all(), default=None)  # none: a person has deleted it
                if newest is not None and newest.number > self._number:
                    terminal.write(
                        f"seedbed: {self._name}: {newest.owner} has taken it over, since this "
                        f"process had not renewed its claim for {EXPIRES_S:.0f} s: nothing more "
                        "is written"
                    )
                    leaving()
                    os._exit(ExitCode.RUN_DIRECTORY)

    def _expired(self, waits: bool) -> int:
        """Return the number of the newest claim once nobody holds it; 0 without one."""
        seen: _Found | None = None
        told = False
        while True:
            found = max(self._all(), default=None)
            if found is None:
                return 0
            # The lock of its kernel, which the caller holds, has been released.
            if found.kernel == running_kernel():
                return found.number
            if seen is not None and (found.number, found.renewed) != (seen.number, seen.renewed):
                raise Claimed(found.owner)
            age = self._now() - found.renewed
            if age > EXPIRES_S:
                log.warning(
                    "%s was claimed by %s, last %.0f s ago: taken over",
                    self._name, found.owner or "a process", age,
                )  # fmt: skip
                return found.number
            if not waits:
                raise Claimed(found.owner)
            if not told:
                log.warning(
                    "%s is claimed by %s: waiting up to %.0f s for a sign of it",
                    self._name, found.owner or "a process", EXPIRES_S - age,
                )  # fmt: skip
                told = True
            seen = found if found.owner else None
            time.sleep(_LOOK_S)

    def _make(self, before: int) -> None:
        """Make the claim that follows `before`; leave it to another one that is faster."""
        self._number = before + 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            file = os.open(self._own, flags, 0o644, dir_fd=self._folder)
        except FileExistsError:
            return
        self._file = file
        with suppress(OSError):  # a full disk: the claim holds without a name
            os.write(file, f"{this_process()}\n{running_kernel()}\n".encode())
        others = {found.number for found in self._all()} - {before, self._number}
        if others:  # made at the same time, after an older one had been removed
            self._remove()
            self._file = -1
            return
        if before:
            with suppress(FileNotFoundError):
                os.unlink(f"{self._name}.{before}", dir_fd=self._folder)

    @property
    def _own(self) -> str:
        return f"{self._name}.{self._number}"

    def _remove(self) -> None:
        with suppress(OSError):
            there = os.stat(self._own, dir_fd=self._folder)
            if os.path.samestat(there, os.fstat(self._file)):
                os.unlink(self._own, dir_fd=self._folder)
        os.close(self._file)

    def _all(self) -> Iterator[_Found]:
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            number = name.removeprefix(f"{self._name}.")
            if number == name or not number.isdecimal():
                continue
            with suppress(FileNotFoundError):
                file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
                try:
                    text = os.read(file, 512).decode(errors="replace")
                    owner, _, kernel = text.removesuffix("\n").partition("\n")
                    yield _Found(int(number), printable(owner), kernel, os.fstat(file).st_mtime)
                finally:
                    os.close(file)

    def _now(self) -> float:
        """Return the file server's time."""
        name = f".tmp-{self._name}-{os.getpid()}-{socket.gethostname()}"
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self._folder)
        try:
            os.utime(file)
            return os.fstat(file).st_mtime
        finally:
            os.close(file)
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)


def this_process() -> str:
    """Return number and host of this process in words, as locks and claims name their holder."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def running_kernel() -> str:
    """Return what tells a running kernel, within which file locks hold, from all others."""
    text = read_or_empty(Path("/proc/sys/kernel/random/boot_id")).strip()
    return text or socket.gethostname()
