"""Passes over a batch, and its minibatches: so many updates, whose frames count once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")


def train(tmp_path: Path, *settings: str) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "seedbed.cli.main", "train",
        str(ROOT / "experiments/cartpole-vtrace.yaml"), "--run-dir", str(tmp_path / "run"),
        "--set", f"learner.backend={BACKEND}", "--set", "agent=ppo",
        "--set", "learner.minibatches=4", "--set", "evaluation.at_end=false",
    ]  # fmt: skip
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    summary: dict[str, Any] = json.loads(done.stdout)
    assert summary["env_frames"] == summary["trained_frames"] + summary["discarded_frames"]
    return summary


@pytest.mark.slow
@pytest.mark.backends
def test_passes_and_minibatches_make_updates_of_the_same_frames(tmp_path: Path) -> None:
    summary = train(
        tmp_path, "learner.deterministic=true", "learner.epochs_per_batch=2", "stop.updates=48"
    )
    assert summary["updates"] == 48
    # 6 batches of 10 steps of 16 columns; the transitions into first rows are no frames.
    assert 0.9 * 6 * 160 < summary["trained_frames"] <= 6 * 160


@pytest.mark.slow
@pytest.mark.backends
def test_the_end_waits_for_no_further_pass(tmp_path: Path) -> None:
    summary = train(tmp_path, "learner.epochs_per_batch=100000", "stop.updates=10")
    assert 10 <= summary["updates"] < 100_000
    # The first pass had ended; what else came in waited behind it.
    assert summary["trained_frames"] <= 160
