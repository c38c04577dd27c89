"""The `seedbed` command as a shell sees it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from seedbed.cli.main import main


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as after `| head`
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "config", "schema"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_command_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "trian"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "train" in done.stderr


@pytest.mark.parametrize("words", [["--", "train"], ["--", "train", "x"]])
def test_a_command_after_two_dashes_is_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "new"),
    [
        (["doctor"], "check machine"),
        (["debug", "dump-unroll", "x"], "inspect"),
        (["learner", "x.yaml", "--stay"], "--linger"),
        (["evaluate", "runs/x", "--environments", "2"], "--num-envs"),
    ],
)
def test_old_names_are_refused_with_the_new_one(
    words: list[str], new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"of 0.1 is `{new}` now" in capsys.readouterr().err.replace("seedbed ", "")
