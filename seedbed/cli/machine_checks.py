"""Checks of the machine: cores, disks, ports."""

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from seedbed.config import Experiment
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.findings import Finding
from seedbed.runtime.limits import usable_cpus
from seedbed.runtime.text import counted

_GIB = 1 << 30


def python(version: tuple[int, int] = sys.version_info[:2]) -> Iterator[Finding]:
    """Check for a Python that the package and its lock files support."""
    fact = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if (3, 11) <= version <= (3, 13):
        yield Finding("ok", fact)
    else:
        advice = "make the virtual environment with python3.11, 3.12 or 3.13"
        yield Finding("fail", f"{fact}; Seedbed needs 3.11 to 3.13", advice, ExitCode.BACKEND)


def cores(experiment: Experiment | None) -> Iterator[Finding]:
    """Compare usable cores with visible ones, and with the threads of the experiment."""
    usable = usable_cpus()
    usable_cores = counted(f"{usable:g}", "core")
    shown = len(os.sched_getaffinity(0))
    if usable < shown:
        yield Finding(
            "warn",
            f"{usable_cores} usable, {shown} visible: a CPU limit (cgroup) is set, and "
            f"TensorFlow and JAX size their thread pools for {shown}",
            f"raise the CPU limit, or run under `taskset -c 0-{max(0, int(usable) - 1)}`",
        )
    else:
        yield Finding("ok", f"{usable_cores} usable")
    if experiment is not None:
        actor = experiment.actor
        # The groups of an actor take turns.
        kind = "workers" if actor.workers else "threads"
        each = actor.workers or actor.threads
        busy = actor.processes * each
        if busy > usable:
            yield Finding(
                "warn",
                f"actor.processes {actor.processes} x actor.{kind} {each} = {busy} "
                f"{kind} step environments on {usable_cores}, which the learner needs too",
                f"lower actor.processes or actor.{kind}",
            )


def disk(run_dir: Path) -> Iterator[Finding]:
    """Check space and the right to write where run directories are."""
    folder = next(path for path in (run_dir.absolute() / "_").parents if path.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".seedbed-check-"):
            pass
    except OSError as error:
        message = f"{folder} cannot be written to: {error.strerror}"
        advice = "choose another --run-dir, or mount a volume there"
        yield Finding("fail", message, advice, ExitCode.RUN_DIRECTORY)
        return
    free = shutil.disk_usage(folder).free
    fact = f"{free / _GIB:.1f} GiB free at {folder}"
    advice = "free or enlarge the volume, or choose another --run-dir"
    if free < 0.1 * _GIB:
        message = f"{fact}: checkpoints and logs will not fit"
        yield Finding("fail", message, advice, ExitCode.CHECKPOINT_WRITE)
    elif free < _GIB:
        yield Finding("warn", f"{fact}: little for a long run", advice)
    else:
        yield Finding("ok", fact)


def ports(experiment: Experiment | None, asked: Sequence[int]) -> Iterator[Finding]:
    """Check the ports of the experiment and of --port."""
    wanted = [(port, "--port") for port in asked]
    if experiment is not None:
        learner, actor = experiment.learner.metrics_port, experiment.actor.metrics_port
        wanted += [(learner, "learner.metrics_port"), (actor, "actor.metrics_port")]
        if learner and learner == actor:
            message = f"learner.metrics_port and actor.metrics_port are both {learner}"
            yield Finding("warn", message, "change one of them, or run them on different machines")
            return
    for port, source in wanted:
        if not port:
            continue
        try:
            with socket.create_server(("", port)):
                yield Finding("ok", f"port {port} ({source}) is free")
        except OSError as error:
            message = f"port {port} ({source}) cannot be listened on: {error.strerror}"
            advice = f"stop what uses it (`ss -ltnp sport = {port}`), or choose another"
            yield Finding("fail", message, advice, ExitCode.BIND)
