"""The worked example of docs/extending.md is written out and trains, as a user would do it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.users_environment import users_environment

ROOT = Path(__file__).parents[2]
BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")


def write_example(directory: Path) -> None:
    text = (ROOT / "docs/extending.md").read_text()
    blocks = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", text, re.DOTALL)
    assert {Path(name).name for name, _ in blocks} == {
        "envs.py",
        "nets.py",
        "agents.py",
        "scalars.py",
        "corridor.yaml",
    }
    for name, body in blocks:
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(body)


def seedbed(directory: Path, *arguments: str) -> dict[str, object]:
    environment = {**users_environment(), "PYTHONPATH": f"{ROOT}:{directory}"}
    command = [sys.executable, "-m", "seedbed.cli.main", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.learning
def test_the_example_learns(tmp_path: Path) -> None:
    write_example(tmp_path)
    summary = seedbed(
        tmp_path, "train", "my_package/corridor.yaml", "--set", f"learner.backend={BACKEND}"
    )
    assert str(summary["stop_reason"]).startswith("stop.mean_return")
    assert summary["evaluation"]["episodes"] > 0
