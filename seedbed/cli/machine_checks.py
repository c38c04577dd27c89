"""The machine itself: cores, memory, disks, descriptors, clocks, ports."""

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
_CLOCK_S = 0.2  # how long the two clocks are compared
_RELEASED = 1_780_000_000  # June 2026, in Unix seconds: no right clock shows less


def python(version: tuple[int, int] = sys.version_info[:2]) -> list[Finding]:
    """Python 3.11 is what the lock file is made for."""
    said = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if version == (3, 11):
        return [Finding("python", "ok", said)]
    advice = "make the virtual environment with python3.11"
    return [Finding("python", "fail", f"{said}; Seedbed needs 3.11", advice, ExitCode.BACKEND)]


def cores(experiment: Experiment | None) -> list[Finding]:
    """Usable cores against what the machine shows and what the experiment starts."""
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
    """Memory within the container's limit. A small learner and one actor want 2 GiB."""
    usable = usable_memory_bytes() if usable is None else usable
    said = f"{usable / _GIB:.1f} GiB of memory usable"
    if usable >= 2 * _GIB:
        return [Finding("memory", "ok", said)]
    advice = "raise the memory limit to 2 GiB or more"
    return [Finding("memory", "warn", f"{said}: a learner may be killed for it", advice)]


def disk(run_dir: Path) -> list[Finding]:
    """Room and the right to write where run directories go."""
    there = run_dir.absolute()
    while not there.exists():
        there = there.parent
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".seedbed-check-"):
            pass
    except OSError as error:
        message = f"{there} cannot be written to: {error.strerror}"
        advice = "choose another --run-dir, or mount a volume there"
        return [Finding("disk", "fail", message, advice, ExitCode.RUN_DIRECTORY)]
    free = shutil.disk_usage(there).free
    said = f"{free / _GIB:.1f} GiB free at {there}"
    advice = "free or enlarge the volume, or choose another --run-dir"
    if free < 0.1 * _GIB:
        message = f"{said}: checkpoints and logs will not fit"
        return [Finding("disk", "fail", message, advice, ExitCode.CHECKPOINT_WRITE)]
    if free < _GIB:
        return [Finding("disk", "warn", f"{said}: little for a long run", advice)]
    return [Finding("disk", "ok", said)]


def shared_memory(path: Path = Path("/dev/shm")) -> list[Finding]:
    """Environments with processes of their own often use it; we do not."""
    size = shutil.disk_usage(path).total / _GIB if path.is_dir() else 0.0
    said = f"{size:.2f} GiB in {path}"
    if size >= 0.0625:
        return [Finding("shm", "ok", said)]
    return [
        Finding(
            "shm",
            "warn",
            f"{said}: environments that start processes of their own may fail",
            "Docker: --shm-size=1g; Kubernetes: an emptyDir with medium Memory at /dev/shm",
        )
    ]


def open_files(experiment: Experiment | None, soft: int | None = None) -> list[Finding]:
    """One descriptor a stream, and a few hundred for the libraries."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if soft is None else soft
    streams = 0
    if experiment is not None:
        streams = experiment.learner.inference.slots // experiment.actor.envs_per_group
    needed = 512 + streams
    said = f"{limit} open files allowed"
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return [Finding("files", "ok", said)]
    return [
        Finding(
            "files",
            "warn",
            f"{said}, {needed} may be needed ({streams} streams and 512 for the rest)",
            f"ulimit -n {needed}",
        )
    ]


def clock() -> list[Finding]:
    """The wall clock must go as fast as the monotonic one, and show a date that can be."""
    mono, wall = time.monotonic(), time.time()
    time.sleep(_CLOCK_S)
    drift = abs((time.time() - wall) - (time.monotonic() - mono))
    now = time.time()
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    advice = "switch on time synchronisation (chrony, systemd-timesyncd)"
    if now < _RELEASED:
        message = f"the clock shows {said}, before this version existed: dates in logs and "
        message += "certificates of buckets will be wrong"
        return [Finding("clock", "warn", message, advice)]
    if drift > 0.05:
        message = f"the clock jumped by {drift:.2f} s while we looked for {_CLOCK_S} s"
        return [Finding("clock", "warn", message, advice)]
    return [Finding("clock", "ok", f"{said}, wall and monotonic clocks agree")]


def ports(experiment: Experiment | None, asked: Sequence[int]) -> list[Finding]:
    """Ports that the experiment names, and those of --port."""
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
