"""`learner.epochs_per_batch`: each batch makes so many updates, and its frames count once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")


@pytest.mark.slow
@pytest.mark.backends
def test_two_passes_make_two_updates_a_batch(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "seedbed.cli.main", "train",
        str(ROOT / "experiments/cartpole-vtrace.yaml"), "--run-dir", str(tmp_path / "run"),
    ]  # fmt: skip
    for setting in (
        f"learner.backend={BACKEND}", "learner.deterministic=true", "learner.epochs_per_batch=2",
        "stop.updates=12", "evaluation.at_end=false",
    ):  # fmt: skip
        command += ["--set", setting]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout)
    assert summary["updates"] == 12
    # 6 batches of 10 steps of 16 columns; the transitions into first rows are no frames.
    assert 0.9 * 6 * 160 < summary["trained_frames"] <= 6 * 160
    assert summary["env_frames"] == summary["trained_frames"] + summary["discarded_frames"]
