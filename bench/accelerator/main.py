"""`seedbed bench accelerator`: the first hour on a machine, in as many calls as it takes."""

import argparse
import importlib.util
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.accelerator.context import Context
from bench.accelerator.nvidia import nvidia
from bench.accelerator.parts import parts
from bench.accelerator.report import markdown
from bench.accelerator.session import Part, Session
from bench.accelerator.sizes import sizes_for
from bench.machine import command, cpu_model, revision
from bench.plan import check_parts
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.limits import usable_cpus

log = logging.getLogger(__name__)

# Settings of one file that may not change from call to call.
FIXED = ("backend", "quick", "fingerprint", "machine_type", "xla_flags")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what only `bench accelerator` takes."""
    group = parser.add_argument_group("of `accelerator`")
    add = group.add_argument
    add(
        "--minutes", type=float, default=60.0, metavar="M",
        help="time of all parts together, over all calls with this --json FILE (default 60)",
    )  # fmt: skip
    add(
        "--machine", dest="machine_type", metavar="TYPE",
        help="machine type in the price table, such as a3-highgpu-1g: prices a billion frames",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Measure what the file lacks; write it after each case.

    Raises:
        SeedbedError: USAGE, the arguments do not fit; INTERNAL, a case failed.
    """
    if args.json is None:
        raise SeedbedError(
            ExitCode.USAGE,
            "bench accelerator needs --json FILE, from which it resumes after a cut",
        )
    path = args.json.absolute()
    session = Session(path, _settings(args), FIXED)
    folder = path.with_suffix(".work")
    folder.mkdir(parents=True, exist_ok=True)
    # A start after the first one takes its compiled programs from there.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "xla"))
    # One process has the device at a time, and the largest replay wants nearly all of its memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")
    # Every way out goes through `finally`, which ends the processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    context = Context(folder, session.results["backend"], sizes_for(args.minutes, args.quick))
    try:
        session.measure(_chosen(parts(context, args.minutes, args.quick), args.parts[1:]))
    finally:
        context.end_child()
        print(markdown(session.results), file=sys.stderr)
        session.write()
    return 0


def _chosen(every: list[Part], names: Sequence[str]) -> list[Part]:
    check_parts(names, [part.name for part in every], "bench accelerator")
    return [part for part in every if not names or part.name in names]


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    has_jax = importlib.util.find_spec("jax") is not None
    return {
        "kind": "accelerator",
        "command": command(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": revision(),
        "minutes": args.minutes,
        "quick": args.quick,
        "backend": args.backend or ("jax" if has_jax else "tensorflow"),
        "machine_type": args.machine_type,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "fingerprint": json.loads(json.dumps([cpu_model(), usable_cpus(), _names()])),
    }


def _names() -> list[str]:
    """Return the names of the NVIDIA GPUs; not the bus, whose width changes with its load."""
    return [line.partition(",")[0] for line in nvidia()]
