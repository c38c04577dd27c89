"""Devices by role, on virtual CPU devices: the master invariant over the wire, and CartPole.

docs/results/README.md keeps the table of what was seen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_imports import ROOT

INVARIANT = "tests/services/learner/test_master_invariant.py"
CASE = "test_training_computes_what_acting_computed[nature-lstm-stack]"
LEARNED = 200  # mean return of CartPole; a random policy has 22
LIMIT_S = 900


def run(*command: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("acting", "training", "batch"),
    [
        (1, 3, 18),
        (1, 1, 16),
        (2, 6, 18),
        (3, 5, 20),
    ],
)
def test_some_devices_act_and_others_train(
    acting: int, training: int, batch: int, tmp_path: Path
) -> None:
    devices = f"{acting}+{training}"
    case = f"{INVARIANT}::{CASE}"
    run("pytest", "-q", "-p", "no:cacheprovider", case,
        SEEDBED_TEST_BACKEND="jax", SEEDBED_TEST_DEVICES=devices)  # fmt: skip
    settings = [
        "learner.backend=jax",
        "learner.device=cpu",
        f"learner.devices={{inference: {acting}, training: {training}}}",
        f"learner.batch_size={batch}",
        f"stop.mean_return={LEARNED}",
        "stop.env_frames=400_000",
    ]
    run("seedbed.cli.main", "train", "experiments/cartpole-vtrace.yaml",
        "--run-dir", str(tmp_path / "run"),
        *(word for setting in settings for word in ("--set", setting)))  # fmt: skip
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["mean_return"] >= LEARNED, summary
