"""`seedbed check learner` where no learner is to answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode

EXPERIMENT = "name: x\nenvironment: {id: CartPole-v1}\n"
# Nothing listens there: a call would fail after the timeout.
ADDRESS = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("finished", "stop.env_frames: 20000 of 20000", "has finished"),
        ("paused", "stop.idle_s: 900 of 600", "is paused"),
    ],
)
def test_a_release_at_zero_is_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: str, words: str
) -> None:
    experiment, state = tmp_path / "experiment.yaml", tmp_path / "state"
    experiment.write_text(EXPERIMENT)
    state.mkdir()
    (state / "dollars").write_text("1.5")
    (state / key).write_text(value)
    command = ["check", "learner", str(experiment), f"--learner={ADDRESS}", "--timeout-s=0.2"]
    assert main([*command, f"--state={state}"]) == 0
    printed = capsys.readouterr()
    assert words in printed.err
    assert value in printed.err
    assert json.loads(printed.out)[key] == value


def test_a_release_that_trains_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment, state = tmp_path / "experiment.yaml", tmp_path / "state"
    experiment.write_text(EXPERIMENT)
    command = ["check", "learner", str(experiment), f"--learner={ADDRESS}", "--timeout-s=0.2"]
    for more in ([], [f"--state={state}"]):  # a ConfigMap that is not there
        assert main([*command, *more]) != 0
        assert f"no action from {ADDRESS}" in capsys.readouterr().err
    state.mkdir()
    (state / "paused").write_text("")
    assert main([*command, f"--state={state}"]) != 0


def test_that_nobody_answers_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(EXPERIMENT)
    assert main(["check", "learner", str(experiment), f"--learner={ADDRESS}", "--timeout-s=2"]) == (
        ExitCode.LEARNER_UNREACHABLE
    )
    first, last, _ = capsys.readouterr().err.splitlines()
    assert first == f"check: nobody answers at {ADDRESS}: waiting for up to 2 s"
    assert "within 2 s" in last
