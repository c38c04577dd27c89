"""A short run for the tests of the pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.users_environment import users_environment

ROOT = Path(__file__).parents[2]
TRAIN = ("cartpole-vtrace", "--set", "stop.env_frames=3000", "--set", "evaluation.episodes=1")


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory as `seedbed train` leaves it."""
    folder = tmp_path_factory.mktemp("pages")
    command = [sys.executable, "-m", "seedbed.cli.main", "train", *TRAIN, "--run-dir", "run"]
    environment = {**users_environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "run"
