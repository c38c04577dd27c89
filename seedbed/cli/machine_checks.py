"""Checks of the machine: cores, memory, disks, descriptors, clocks, ports."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from seedbed.cli.finding import Finding
from seedbed.config import Experiment
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.limits import usable_cpus, usable_memory_bytes

_GIB = 1 << 30
# Length of the comparison of the two clocks.
_CLOCK_S = 0.2
# June 2026, in Unix seconds: a clock that is right shows more.
_RELEASED = 1_780_000_000


def python(version: tuple[int, int] = sys.version_info[:2]) -> list[Finding]:
    """Check for Python 3.11, which the lock files are made for."""
    fact = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if version == (3, 11):
        return [Finding("python", "ok", fact)]
    advice = "make the virtual environment with python3.11"
    return [Finding("python", "fail", f"{fact}; Seedbed needs 3.11", advice, ExitCode.BACKEND)]


def cores(experiment: Experiment | None) -> list[Finding]:
    """Compare usable cores with visible ones, and with the threads of the experiment."""
    usable = usable_cpus()
    shown = len(os.sched_getaffinity(0))
    findings = []
    if usable < shown:
        findings.append(
            Finding(
                "cores",
                "warn",
                f"{usable:g} cores usable, {shown} visible: a CPU limit (cgroup) is set, and "
                f"TensorFlow and JAX size their thread pools for {shown}",
                f"raise the CPU limit, or run under `taskset -c 0-{max(0, int(usable) - 1)}`",
            )
        )
    else:
        findings.append(Finding("cores", "ok", f"{usable:g} cores usable"))
    if experiment is not None:
        actor = experiment.actor
        busy = actor.processes * actor.threads
        if busy > usable:
            findings.append(
                Finding(
                    "cores",
                    "warn",
                    f"actor.processes {actor.processes} x actor.threads {actor.threads} = {busy} "
                    f"threads step environments on {usable:g} cores, which the learner needs too",
                    "lower actor.processes or actor.threads",
                )
            )
    return findings


def memory(usable: int | None = None) -> list[Finding]:
    """Check memory within the container's limit. A small learner and an actor need 2 GiB."""
    usable = usable_memory_bytes() if usable is None else usable
    fact = f"{usable / _GIB:.1f} GiB of memory usable"
    if usable >= 2 * _GIB:
        return [Finding("memory", "ok", fact)]
    advice = "raise the memory limit to 2 GiB or more"
    return [
        Finding("memory", "warn", f"{fact}: a learner may be killed for lack of memory", advice)
    ]


def disk(run_dir: Path) -> list[Finding]:
    """Check space and the right to write where run directories are."""
    folder = run_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".seedbed-check-"):
            pass
    except OSError as error:
        message = f"{folder} cannot be written to: {error.strerror}"
        advice = "choose another --run-dir, or mount a volume there"
        return [Finding("disk", "fail", message, advice, ExitCode.RUN_DIRECTORY)]
    free = shutil.disk_usage(folder).free
    fact = f"{free / _GIB:.1f} GiB free at {folder}"
    advice = "free or enlarge the volume, or choose another --run-dir"
    if free < 0.1 * _GIB:
        message = f"{fact}: checkpoints and logs will not fit"
        return [Finding("disk", "fail", message, advice, ExitCode.CHECKPOINT_WRITE)]
    if free < _GIB:
        return [Finding("disk", "warn", f"{fact}: little for a long run", advice)]
    return [Finding("disk", "ok", fact)]


def shared_memory(path: Path = Path("/dev/shm")) -> list[Finding]:
    """Check shared memory, which environments with processes of their own often use."""
    size = shutil.disk_usage(path).total / _GIB if path.is_dir() else 0.0
    fact = f"{size:.2f} GiB in {path}"
    if size >= 0.0625:
        return [Finding("shm", "ok", fact)]
    return [
        Finding(
            "shm",
            "warn",
            f"{fact}: environments that start processes of their own may fail",
            "Docker: --shm-size=1g; Kubernetes: an emptyDir with medium Memory at /dev/shm",
        )
    ]


def open_files(experiment: Experiment | None, soft: int | None = None) -> list[Finding]:
    """Check the limit of descriptors: one a stream, and a few hundred for the libraries."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if soft is None else soft
    streams = 0
    if experiment is not None:
        streams = experiment.learner.inference.slots // experiment.actor.envs_per_group
    needed = 512 + streams
    fact = f"{limit} open files allowed"
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return [Finding("files", "ok", fact)]
    return [
        Finding(
            "files",
            "warn",
            f"{fact}, {needed} may be needed ({streams} streams and 512 for the rest)",
            f"ulimit -n {needed}",
        )
    ]


def clock() -> list[Finding]:
    """Check that the wall clock runs as fast as the monotonic one, at a possible date."""
    mono, wall = time.monotonic(), time.time()
    time.sleep(_CLOCK_S)
    drift = abs((time.time() - wall) - (time.monotonic() - mono))
    now = time.time()
    fact = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    advice = "switch on time synchronisation (chrony, systemd-timesyncd)"
    if now < _RELEASED:
        message = f"the clock shows {fact}, before this version existed: dates in logs will "
        message += "be wrong, and certificates of buckets will be refused"
        return [Finding("clock", "warn", message, advice)]
    if drift > 0.05:
        message = f"the clock jumped by {drift:.2f} s within {_CLOCK_S} s"
        return [Finding("clock", "warn", message, advice)]
    return [Finding("clock", "ok", f"{fact}, wall and monotonic clocks agree")]


def ports(experiment: Experiment | None, asked: Sequence[int]) -> list[Finding]:
    """Check the ports of the experiment and of --port."""
    wanted = [(port, "--port") for port in asked]
    if experiment is not None:
        learner, actor = experiment.learner.metrics_port, experiment.actor.metrics_port
        wanted += [(learner, "learner.metrics_port"), (actor, "actor.metrics_port")]
        if learner and learner == actor:
            message = f"learner.metrics_port and actor.metrics_port are both {learner}"
            advice = "change one of them, or run them on different machines"
            return [Finding("ports", "warn", message, advice)]
    findings = []
    for port, source in wanted:
        if not port:
            continue
        try:
            with socket.create_server(("", port)):
                pass
        except OSError as error:
            message = f"port {port} ({source}) cannot be listened on: {error.strerror}"
            advice = f"stop what uses it (`ss -ltnp sport = {port}`), or choose another"
            findings.append(Finding("ports", "fail", message, advice, ExitCode.BIND))
        else:
            findings.append(Finding("ports", "ok", f"port {port} ({source}) is free"))
    return findings
