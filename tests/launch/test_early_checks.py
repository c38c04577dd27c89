"""What is tried before a backend is loaded ends a run at once, with the sentence alone."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from seedbed.cli.train import warn_of_exploration
from seedbed.config import parse_experiment
from seedbed.launch import early_checks
from seedbed.runs.directory import open_run_directory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

ROOT = Path(__file__).parents[2]


def train(tmp_path: Path, *settings: str, learners: int = 1) -> subprocess.CompletedProcess[str]:
    overrides = [f"--set={setting}" for setting in settings]
    command = [sys.executable, "-m", "seedbed.cli.main", "train", "cartpole-vtrace", *overrides]
    return subprocess.run(
        [*command, "--learners", str(learners), "--run-dir", str(tmp_path / "run")],
        capture_output=True, text=True, cwd=ROOT, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("environment.id=CartPoel-v1", "Did you mean: `CartPole`?"),
        ("environment.id=tests.support.early:Unbounded", "no bounds to scale to"),
        ("environment.id=MiniGrid-Empty-5x5-v0", "`minigrid:MiniGrid-Empty-5x5-v0`"),
        ("environment.id=tests.support.early:Raises", "RuntimeError: boom"),
    ],
)
def test_an_environment_that_cannot_be_played_ends_the_run_before_a_backend(
    tmp_path: Path, setting: str, words: str
) -> None:
    done = train(tmp_path, setting)
    assert done.returncode == ExitCode.ENVIRONMENT, done.stderr
    *_, sentence, code = done.stderr.splitlines()
    assert words in sentence
    assert done.stderr.count(words) == 1
    assert code.startswith("seedbed: exit code 11")
    for late in ("tensorflow", "oneDNN", "last words", "part failed"):
        assert late not in done.stderr


def test_the_end_of_one_of_several_learners_names_its_cause(tmp_path: Path) -> None:
    done = train(tmp_path, "environment.id=CartPol-v1", learners=2)
    assert done.returncode == ExitCode.ENVIRONMENT, done.stderr
    assert "Did you mean: `CartPole`" in done.stderr


def test_a_port_that_is_taken_is_named_before_anything_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SeedbedError, match=f"cannot listen on {address}") as error:
            early_checks.check_address(address)
        assert error.value.code is ExitCode.BIND
    early_checks.check_address(address)


def test_a_volume_without_room_for_checkpoints_is_refused_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = parse_experiment("name: x\nenvironment: {id: CartPole-v1}\n")
    usage = namedtuple("usage", "total used free")
    with open_run_directory(tmp_path / "run", experiment) as run:
        early_checks.check_disk(run)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 30 * 2**20))
        with pytest.raises(SeedbedError, match=r"30 MiB free, and logs and .* need 50 MiB"):
            early_checks.check_disk(run)


@pytest.mark.parametrize(("levels", "warns"), [(9, True), (8, False), (0, False)])
def test_levels_of_exploration_that_nothing_holds_are_warned_of(
    caplog: pytest.LogCaptureFixture, levels: int, warns: bool
) -> None:
    text = (
        "name: x\nenvironment: {id: CartPole-v1}\nagent: r2d2\n"
        "learner: {network: mlp, lstm_units: 8}\n"
    )
    overrides = ["actor.envs_per_group=4", f"r2d2.epsilon_levels={levels}"]
    warn_of_exploration(parse_experiment(text, overrides))
    assert ("r2d2.epsilon_levels is 9" in caplog.text) == warns
