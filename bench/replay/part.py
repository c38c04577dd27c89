"""Part `replay` of the benchmark: each measurement in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import logging
import subprocess
import sys
from typing import Any

from bench.plan import Plan
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)

LONGEST_S = 1800.0


def replay(plan: Plan) -> dict[str, Any]:
    """Measure storages, shards and the training step.

    Raises:
        SeedbedError: A measurement failed.
    """
    backend = "tensorflow" if importlib.util.find_spec("tensorflow") else "jax"
    windows = ["--runs", str(plan.runs), "--window-s", str(plan.replay_window_s)]
    sequences = ["--sequences", str(plan.replay_sequences)]
    return {
        "backend": backend,
        "homes": _measured("storages", "--backend", backend, *windows, *sequences),
        "service": _measured(
            "service", "--runs", str(plan.runs), "--rounds", str(plan.replay_rounds), *sequences
        ),
        "training": _measured(
            "training",
            *("--backend", backend, *windows, "--transitions", str(plan.replay_transitions)),
            *("--batches", *map(str, plan.replay_batches)),
            *("--sizes", *map(str, plan.replay_sizes)),
        ),
    }


def _measured(name: str, *arguments: str) -> dict[str, Any]:
    log.info("replay: %s", name)
    command = [sys.executable, "-m", f"bench.replay.{name}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    if done.returncode:
        raise SeedbedError(
            ExitCode.INTERNAL, f"{' '.join(command)} ended with {done.returncode}: "
            f"{done.stderr[-2000:]}"
        )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result
