"""Memory and CPU time of a process and of all that it has started."""

import os
from pathlib import Path
from typing import NamedTuple

from seedbed.runtime.limits import read_or_empty


class Usage(NamedTuple):
    """What processes take.

    Attributes:
        memory_bytes: Memory, with what processes share counted once.
        cpu_seconds: CPU time so far, with that of processes that have ended.
    """

    memory_bytes: int
    cpu_seconds: float


def usage_of(pid: int, root: Path = Path("/")) -> Usage:
    """Return what a process and all below it take; zeros where the system does not tell.

    Args:
        pid: Of the process.
        root: Root of the file system.
    """
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for folder in (root / "proc").glob("[0-9]*"):
        after_name = read_or_empty(folder / "stat").rpartition(")")[2].split()
        if after_name:
            below.setdefault(int(after_name[1]), []).append(int(folder.name))
            ticks[int(folder.name)] = sum(map(int, after_name[11:15]))
    found = [pid]
    for one in found:
        found += below.get(one, [])
    memory = sum(_memory_bytes(root / f"proc/{one}/smaps_rollup") for one in found)
    seconds = sum(ticks.get(one, 0) for one in found) / os.sysconf("SC_CLK_TCK")
    return Usage(memory, seconds)


def _memory_bytes(file: Path) -> int:
    """Return the proportional size of a process: shared pages are divided among those with them."""
    for line in read_or_empty(file).splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
