"""Faults of a machine, injected into a running process by its limits, or by moving its clock."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

_SOME_BYTES = 4 * 1024  # less than any checkpoint
_SPARE_DESCRIPTORS = 4
_SPARE_MEMORY = 4 * 1024 * 1024


@contextlib.contextmanager
def _limit(pid: int, kind: int, soft: int) -> Iterator[None]:
    """Lower the soft limit of a process; it may end meanwhile."""
    _, hard = resource.prlimit(pid, kind)
    before = resource.prlimit(pid, kind, (soft, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, before)


@contextlib.contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """No file may grow beyond a few KiB, as on a volume that is full."""
    with _limit(pid, resource.RLIMIT_FSIZE, _SOME_BYTES):
        yield


@contextlib.contextmanager
def little_memory(pid: int) -> Iterator[None]:
    """Let a process map a few MiB more than it has, and no more."""
    with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123
        pages = int(file.read().split()[0])
    mapped = pages * resource.getpagesize()
    with _limit(pid, resource.RLIMIT_AS, mapped + _SPARE_MEMORY):
        yield


@contextlib.contextmanager
def movable_clocks(folder: Path) -> Iterator[None]:
    """Let `move_clock` move the clocks of the Python processes that start meanwhile.

    Args:
        folder: an empty one, for the offsets.
    """
    path = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent / "clock")]
    more = {"STORM_CLOCK": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, path))}
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def move_clock(pid: int, seconds: float) -> None:
    """Move the wall clock of a process by so many seconds, for the rest of its life."""
    file = Path(os.environ["STORM_CLOCK"]) / str(pid)
    new = file.with_name(f".{pid}")
    new.write_text(f"{seconds}", encoding="ascii")
    new.replace(file)


@contextlib.contextmanager
def few_descriptors(pid: int, path: str) -> Iterator[None]:
    """Take all descriptors of a process by idle connections to its unix socket.

    Args:
        pid: the process.
        path: its socket.
    """
    used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
    idle = []
    try:
        with _limit(pid, resource.RLIMIT_NOFILE, used + 1 + _SPARE_DESCRIPTORS):
            for _ in range(10 * _SPARE_DESCRIPTORS):
                one = socket.socket(socket.AF_UNIX)
                one.settimeout(1.0)
                idle.append(one)
                with contextlib.suppress(OSError):
                    one.connect(path)
            yield
    finally:
        for one in idle:
            one.close()
