"""Small things are learned over the real wire, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")


CARTPOLE = ROOT / "experiments/cartpole-vtrace.yaml"
# The networks and the agent of Pong, which takes too long for a test.
CATCH = """
name: catch
environment: {id: "tests.learning.catch:Catch"}
actor: {environments: 32}
learner:
  network: impala_shallow
  network_options: {standardize: true}
  unroll_length: 5
  batch_size: 16
  optimizer: {name: rmsprop, learning_rate: 1.5e-3, epsilon: 1.0e-5, max_gradient_norm: 0.5}
vtrace: {entropy_cost: 0.004}
evaluation: {at_end: false}
stop: {mean_return: 0.8, env_frames: 500000}
"""


def train(experiment: Path, run_dir: Path, *settings: str) -> dict[str, object]:
    command = [
        sys.executable, "-m", "services.cli.main", "train", str(experiment),
        "--run-dir", str(run_dir),
        "--set", f"learner.backend={BACKEND}",
    ]  # fmt: skip
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.learning
def test_cartpole_reaches_400(tmp_path: Path) -> None:
    summary = train(CARTPOLE, tmp_path / "run", "stop.mean_return=400")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
    assert float(str(summary["mean_return"])) >= 400
    # The last evaluation played the same policy apart from training.
    assert summary["evaluation"]["mean"] >= 300


@pytest.mark.learning
def test_cartpole_with_lstm_and_stacking_learns(tmp_path: Path) -> None:
    summary = train(
        CARTPOLE, tmp_path / "run",
        "learner.lstm_units=32", "learner.frame_stack=2", "stop.mean_return=150",
    )  # fmt: skip
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary


@pytest.mark.learning
@pytest.mark.skipif(BACKEND == "jax", reason="takes JAX several minutes on two cores")
def test_catch_is_learned_from_pixels(tmp_path: Path) -> None:
    experiment = tmp_path / "catch.yaml"
    experiment.write_text(CATCH)
    summary = train(experiment, tmp_path / "run")
    assert str(summary["stop_reason"]).startswith("stop.mean_return"), summary
