"""The second command in a run's directory: resumes, is refused, is at its end, or is accepted."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
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
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
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


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `seedbed train` has trained with a learning rate of 0.003."""
    folder = tmp_path_factory.mktemp("finished")
    code, said = train(folder, *options(FRAMES, rate(0.003)))
    assert code == 0, said
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "copy")


@pytest.mark.slow
def test_three_learning_rates_in_one_directory(folder: Path) -> None:
    """A shell loop over learning rates never gives the first one's result for another."""
    run = folder / "runs" / "cartpole-vtrace"
    before = contents(run)
    for value in (0.01, 0.03):
        code, said = train(folder, *options(FRAMES, rate(value)))
        assert code == ExitCode.RESUME_REFUSED, said
        assert f"learner.optimizer.learning_rate: 0.003 -> {value}" in said
        assert contents(run) == before
        new = next(line for line in said.splitlines() if line.startswith("  new run"))
        words = shlex.split(new.partition("seedbed train ")[2])
    # The command for another directory trains as it was printed.
    code, said = train(folder, *words[1:], experiment=words[0])
    assert code == 0, said
    assert (folder / "runs" / "cartpole-vtrace-2" / "summary.json").exists()
    assert contents(run) == before


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["cartpole-vtrace", "runs/cartpole-vtrace/experiment.yaml"])
def test_a_run_at_its_end_is_left_as_it_is(folder: Path, experiment: str) -> None:
    """The old settings, the run's own file, and a backend that is not here change nothing."""
    run = folder / "runs" / "cartpole-vtrace"
    before = contents(run)
    words = [] if "/" in experiment else options(FRAMES, rate(0.003), "learner.device=gpu")
    code, said = train(folder, *words, experiment=experiment)
    assert code == 0, said
    assert "runs/cartpole-vtrace is at its end (stop.env_frames" in said
    assert contents(run) == before


@pytest.mark.slow
def test_an_accepted_change_resumes_and_is_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    run = folder / "runs" / "cartpole-vtrace"
    frames = json.loads((run / "summary.json").read_text())["env_frames"]
    more = [*SETTINGS, "stop.env_frames=1600"]
    with pytest.raises(SeedbedError, match=r"learning_rate: 0\.003 -> 0\.01") as caught:
        seedbed.train("cartpole-vtrace", overrides=[*more, rate(0.01)])
    assert caught.value.code == ExitCode.RESUME_REFUSED
    accept = str(caught.value).split("change=")[1][1:9]
    # The digest names this one change, and the words are the same in a shell.
    code, said = train(folder, *options(*more[len(SETTINGS) :], rate(0.02)), "--change", accept)
    assert code == ExitCode.RESUME_REFUSED
    assert f"--change {accept} names another difference" in said
    code, said = train(folder, *options("stop.env_frames=1600", rate(0.01)))
    assert f"--change {accept}" in said
    summary = seedbed.train("cartpole-vtrace", overrides=[*more, rate(0.01)], change=accept)
    assert summary["env_frames"] >= 1600
    # Left in a script, the option changes nothing more.
    assert seedbed.train("cartpole-vtrace", overrides=[*more, rate(0.01)], change=accept) == summary
    origin = provenance(run)
    assert origin is not None
    (change,) = origin["changes"]
    assert change == f"learner.optimizer.learning_rate: 0.003 -> 0.01 at frame {frames:,}"
    status = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "status", str(run)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert change in status
