"""The second command in a run's directory: resumes, is refused, is at its end, or is accepted."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import seedbed
from seedbed.runs.history import provenance
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

FRAMES = "stop.env_frames=800"
SETTINGS = [
    *("stop.mean_return=null", "evaluation.at_end=false", "actor.groups=1", "actor.processes=1"),
    *("actor.envs_per_group=4", "learner.batch_size=4", "learner.unroll_length=10"),
]


def train(folder: Path, *words: str, experiment: str = "cartpole-vtrace") -> tuple[int, str]:
    """Exit code and stderr of `seedbed train` in a folder."""
    command = [sys.executable, "-m", "seedbed.cli.main", "train", experiment, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


def options(*overrides: str) -> list[str]:
    return [word for setting in (*SETTINGS, *overrides) for word in ("--set", setting)]


def contents(folder: Path) -> dict[str, str]:
    """A checksum of every file below a folder, and its time."""
    return {
        f"{file.relative_to(folder)} {file.stat().st_mtime_ns}": hashlib.sha256(
            file.read_bytes()
        ).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def rate(value: float) -> str:
    return f"learner.optimizer.learning_rate={value}"


def test_three_learning_rates_in_one_directory(tmp_path: Path) -> None:
    """A shell loop over learning rates never gives the first one's result for another."""
    assert train(tmp_path, *options(FRAMES, rate(0.003)))[0] == 0
    run = tmp_path / "runs" / "cartpole-vtrace"
    before = contents(run)
    for value in (0.01, 0.03):
        code, said = train(tmp_path, *options(FRAMES, rate(value)))
        assert code == ExitCode.RESUME_REFUSED, said
        assert f"learner.optimizer.learning_rate: 0.003 -> {value}" in said
        assert contents(run) == before
        new = next(line for line in said.splitlines() if line.startswith("  new run"))
        words = shlex.split(new.partition("seedbed train ")[2])
    # The command for another directory trains as it was printed.
    code, said = train(tmp_path, *words[1:], experiment=words[0])
    assert code == 0, said
    assert (tmp_path / "runs" / "cartpole-vtrace-2" / "summary.json").exists()
    # With the old settings the run is at its end, and nothing is touched.
    code, said = train(tmp_path, *options(FRAMES, rate(0.003)))
    assert code == 0
    assert "is at its end (stop.env_frames" in said
    assert contents(run) == before
    # Its own file means that run.
    code, said = train(tmp_path, experiment="runs/cartpole-vtrace/experiment.yaml")
    assert code == 0
    assert "runs/cartpole-vtrace is at its end" in said
    assert train(tmp_path, experiment="runs/cartpole-vtrace")[0] == 0
    # A backend that is not here changes nothing of a finished run.
    assert train(tmp_path, *options(FRAMES, rate(0.003), "learner.device=gpu"))[0] == 0
    assert contents(run) == before


def test_an_accepted_change_goes_on_and_is_seen(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "cartpole-vtrace"
    assert train(tmp_path, *options(FRAMES))[0] == 0
    more = options("stop.env_frames=1600", rate(0.01))
    code, said = train(tmp_path, *more)
    assert code == ExitCode.RESUME_REFUSED
    accept = said.split("--change ")[1].split()[0]
    assert train(tmp_path, *options("stop.env_frames=1600", rate(0.02)), "--change", accept)[0] == (
        ExitCode.RESUME_REFUSED
    )
    code, said = train(tmp_path, *more, "--change", accept)
    assert code == 0, said
    # Left in a script, the option changes nothing more.
    assert train(tmp_path, *more, "--change", accept)[0] == 0
    origin = provenance(run)
    assert origin is not None
    (change,) = origin["changes"]
    assert change.startswith("learner.optimizer.learning_rate: 0.003 -> 0.01 at frame 8")
    status = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "status", str(run)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert change in status
    assert "--change" in status


def test_python_raises_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = seedbed.train("cartpole-vtrace", overrides=[*SETTINGS, FRAMES])
    with pytest.raises(SeedbedError, match=r"learning_rate: 0\.003 -> 0\.01") as caught:
        seedbed.train("cartpole-vtrace", overrides=[*SETTINGS, FRAMES, rate(0.01)])
    assert caught.value.code == ExitCode.RESUME_REFUSED
    accept = str(caught.value).split("change=")[1][1:9]
    again = seedbed.train("cartpole-vtrace", overrides=[*SETTINGS, FRAMES])
    assert again["env_frames"] == first["env_frames"]
    more = [*SETTINGS, "stop.env_frames=1600", rate(0.01)]
    assert seedbed.train("cartpole-vtrace", overrides=more, change=accept)["env_frames"] >= 1600
