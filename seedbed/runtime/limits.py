"""Cores and memory that this process may use, as the container or the machine limits them."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

# Names cores and bytes of memory, such as `1.0,4e9`: the part of this machine that a process gets.
SHARE = "SEEDBED_SHARE"
_UNKNOWN = 1 << 63  # above any machine, and above what cgroup v1 says for "no limit"


def usable_cpus(root: Path = Path("/")) -> float:
    """Return the cores that this process may use: the affinity, limited by the cgroup's quota."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    for folder in _cgroup_folders(root, "cpu"):
        quota, period = _numbers(folder / "cpu.max", 2)  # v2: "150000 100000" or "max 100000"
        if math.isnan(quota):
            (quota,) = _numbers(folder / "cpu.cfs_quota_us", 1)
            (period,) = _numbers(folder / "cpu.cfs_period_us", 1)
        if quota > 0 and period > 0:
            cores = min(cores, quota / period)
    return cores


def usable_memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory that this process may use: the machine's, or the cgroup's limit."""
    memory = _UNKNOWN
    for line in read_or_empty(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            memory = int(line.split()[1]) * 1024
    for folder in _cgroup_folders(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            (limit,) = _numbers(folder / name, 1)
            if limit > 0:
                memory = min(memory, int(limit))
    return memory if memory < _UNKNOWN else 0


def share_of_machine() -> tuple[float, float]:
    """Return cores and bytes of memory that this process gets of its machine.

    Runs that share a machine have parts of it by `SHARE`; another process has all it may use.
    """
    if given := os.environ.get(SHARE):
        cores, memory = map(float, given.split(","))
        return cores, memory
    return usable_cpus(), float(usable_memory_bytes())


def memory_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel has killed for memory, in this container if it is one.

    Without a limit of a container it is those of the machine since its start.
    """
    folders = [*_cgroup_folders(root, "memory")]
    names = ("memory.events", "memory.oom_control")
    for file in [*(folder / name for folder in folders for name in names), root / "proc/vmstat"]:
        for line in read_or_empty(file).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def machine_cpu_seconds(root: Path = Path("/")) -> float | None:
    """Return the CPU seconds used on this machine so far; None where they are not known.

    In a container with a quota, they are the CPU seconds of the container.
    """
    for folder in _cgroup_folders(root, "cpu"):
        if not math.isnan(_numbers(folder / "cpu.max", 2)[0]):
            for line in read_or_empty(folder / "cpu.stat").splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / 1e6
    fields = read_or_empty(root / "proc/stat").partition("\n")[0].split()
    if len(fields) < 8 or fields[0] != "cpu":
        return None
    user, nice, system, _idle, _iowait, interrupts, soft = (int(field) for field in fields[1:8])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def process_start_ticks(pid: int, root: Path = Path("/")) -> int | None:
    """Return when a process started, in clock ticks after boot; None where there is no process.

    The number and the start together identify one process, because numbers are used again.
    """
    text = read_or_empty(root / f"proc/{pid}/stat")
    after_name = text.rpartition(")")[2].split()  # the name may hold spaces and brackets
    return int(after_name[19]) if len(after_name) > 19 else None


def process_state(pid: int) -> str | None:
    """Return the letter of a process's state, such as T for stopped; None: there is no process."""
    found = state_and_parent(pid)
    return found[0] if found is not None else None


def state_and_parent(pid: int) -> tuple[str, int] | None:
    """Return the letter of a process's state and its parent's number; None: there is no process."""
    after_name = read_or_empty(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (after_name[0], int(after_name[1])) if after_name else None


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the cgroup folders whose limits hold for this process, the innermost first."""
    for line in read_or_empty(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / controller
        else:
            continue
        # Inside a container the path may be the host's, which is not visible here; the top is.
        folder = top / path.strip("/")
        while folder != top and top in folder.parents:
            yield folder
            folder = folder.parent
        yield top


def _numbers(path: Path, count: int) -> tuple[float, ...]:
    """Read the first numbers of a file; NaN for a missing one and for words such as "max"."""
    words = [*read_or_empty(path).split()[:count], *[""] * count][:count]
    return tuple(float(word) if word.lstrip("-").isdigit() else math.nan for word in words)


def read_or_empty(path: Path) -> str:
    """Return the text of a file of the kernel; empty where there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # this kind of machine has no such file
