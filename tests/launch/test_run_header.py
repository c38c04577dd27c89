"""Header of a run: where it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.config.load import load_experiment
from seedbed.launch.run_header import header
from seedbed.runs.directory import open_run_directory


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ((), "begins here"),
        (("learner-0",), "begins here"),
        (("learner-0", "learner-1/checkpoints"), "each learner resumes from its checkpoint"),
    ],
)
def test_learners_that_were_there_before(tmp_path: Path, made: tuple[str, ...], words: str) -> None:
    experiment = load_experiment("cartpole-a2c", ["gossip.replicas=2"])
    with open_run_directory(tmp_path / "run", experiment) as directory:
        for name in made:
            (tmp_path / "run" / name).mkdir(parents=True)
        assert f"({words})" in header(experiment, directory)
