"""`seedbed list DIR`: each run below a folder, with what has become of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seedbed.cli.main import main
from seedbed.config.load import dump_experiment, load_experiment
from seedbed.runtime.exit_codes import ExitCode
from seedbed.telemetry import Counters
from tests.support.telemetry_runs import Clock, make, some_events


def a_run(path: Path, reason: str | None = None, dead: bool = False) -> None:
    """A run of 40 of 80 frames, whose process is this one unless it is dead."""
    path.mkdir(parents=True)
    (path / "experiment.yaml").write_text(dump_experiment(load_experiment("cartpole-vtrace")))
    clock = Clock()
    telemetry, _ = make(path, clock, Counters(), stop={"env_frames": 80})
    some_events(telemetry)
    clock.now += 10
    telemetry.tick()
    telemetry.stop_reason = reason
    if reason:
        telemetry.tick()
    telemetry.outputs.close()
    if dead:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait(timeout=60)
        status = json.loads((path / "status.json").read_text())
        status["process"]["pid"] = ended.pid
        (path / "status.json").write_text(json.dumps(status))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    a_run(tmp_path / "sweep/lr-1", "stop.env_frames: 80 of 80")
    a_run(tmp_path / "sweep/lr-2", "signal SIGINT")
    a_run(tmp_path / "sweep/lr-3")
    a_run(tmp_path / "failed", "a part failed")
    a_run(tmp_path / "killed", dead=True)
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "experiment.yaml").touch()
    (begun / "seedbed.lock").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/experiment.yaml").touch()  # of a person
    (tmp_path / "link").symlink_to(tmp_path / "sweep")
    return tmp_path


def test_each_run_has_a_state(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(runs), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["run"]: row["state"] for row in rows} == {
        "begun": "begun",
        "failed": "FAILED",
        "killed": "DEAD",
        "sweep/lr-1": "finished",
        "sweep/lr-2": "stopped",
        "sweep/lr-3": "training",
    }
    lives = [row["run"] for row in rows if row["seconds_left"] is not None]
    assert lives == ["sweep/lr-3"]


def test_progress_score_time_and_cost(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(runs / "sweep")]) == 0
    head, done, _, training = capsys.readouterr().out.splitlines()
    assert head.split() == [
        *("run", "state", "frames", "done", "return", "evaluation", "time"),
        *("to", "go", "cost"),
    ]
    # 4 frames a second.
    row = ["lr-3", "training", "40", "50", "%", "-6.00", "7.00", "10", "s", "10", "s", "$0.0100"]
    assert training.split() == row
    assert done.split()[-2] == "-", "a finished run has no time to go"


def test_a_plot_names_the_states_of_a_comparison(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run is finished once it has its summary, which these lack."""
    assert main(["plot", str(runs), "--out", str(tmp_path / "all.png")]) == 0
    left_out, _, *rows, _ = capsys.readouterr().err.splitlines()
    assert left_out.startswith("left out: ")
    assert str(runs / "begun") in left_out
    states = ["failed", "unfinished", "unfinished", "stopped", "unfinished"]
    assert [row.split()[-1] for row in rows] == states


def test_a_run_directory_is_a_list_of_one(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", str(runs / "sweep/lr-1"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["run"], row["path"]) == ("lr-1", str(runs / "sweep/lr-1"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("notes", "no run directory, and no run is below it"),
        ("notes/experiment.yaml", "is a file"),
        ("none", "does not exist"),
    ],
)
def test_where_no_run_is(
    runs: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("list", "plot"):
        assert main([command, str(runs / name)]) == ExitCode.RUN_DIRECTORY
        assert words in capsys.readouterr().err


def test_what_cannot_be_read_is_left_out_alone(
    runs: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (runs / "killed/status.json").write_text('{"counters": {}}')
    (runs / "failed/status.json").write_text("[]")
    assert main(["list", str(runs), "--json"]) == 0
    states = {row["run"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["killed"] == states["failed"] == "begun"
    assert states["sweep/lr-1"] == "finished"
    assert main(["status", str(runs / "killed")]) == ExitCode.RUN_DIRECTORY
    assert "is no status of a run: it lacks 'agent'" in capsys.readouterr().err


def test_the_progress_is_that_of_the_nearest_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path / "a")
    file = tmp_path / "a/status.json"
    status = json.loads(file.read_text())
    status["stop"] |= {"env_frames": 0, "updates": 8}
    status["counters"] |= {"updates": 6}
    file.write_text(json.dumps(status))
    assert main(["list", str(tmp_path / "a"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["done"] == 0.75
    status["counters"] |= {"updates": 0}
    status["stop_reason"] = "stop.env_frames: 40 of 40"
    file.write_text(json.dumps(status))
    assert main(["list", str(tmp_path / "a")]) == 0
    assert "untrained" in capsys.readouterr().out
