"""CartPole is learned over the real wire, by the shipped experiment, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")


def train(run_dir: Path, *settings: str) -> dict[str, object]:
    command = [
        sys.executable, "-m", "services.cli.main", "train",
        str(ROOT / "experiments/cartpole-vtrace.yaml"), "--run-dir", str(run_dir),
        "--set", f"learner.backend={BACKEND}",
    ]  # fmt: skip
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.learning
def test_cartpole_reaches_400(tmp_path: Path) -> None:
    summary = train(tmp_path / "run", "stop.mean_return=400")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
    assert float(str(summary["mean_return"])) >= 400
    # The last evaluation played the same policy apart from training.
    assert summary["evaluation"]["mean"] >= 300


@pytest.mark.learning
def test_cartpole_with_lstm_and_stacking_learns(tmp_path: Path) -> None:
    summary = train(
        tmp_path / "run",
        "learner.lstm_units=32", "learner.frame_stack=2", "stop.mean_return=150",
    )  # fmt: skip
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
