"""Runs of 0.1.0 go on under this version, with the settings that 0.1.0 ran them with."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seedbed.config.load import dump_experiment
from seedbed.runs.resume import read_stored
from tests.support.processes import ROOT, Process

FIXTURES = ROOT / "tests" / "fixtures" / "v0_1"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())["runs"]
DEADLINE_S = 240.0

# The stop condition that each run goes on to; low, since the counters need only go on.
GOALS = {
    "vtrace": "stop.env_frames=6400",
    "r2d2": "stop.env_frames=4700",
    "dqn": "stop.updates=64",
    "gossip": "stop.env_frames=10500",
}
QUIET = ("evaluation.at_end=false", "evaluation.every_frames=0")
# What a resume may report: what this test has set, and addresses, which are of the folder.
ALLOWED = ("stop.env_frames", "stop.updates", "evaluation.at_end", "evaluation.every_frames")


def converted(folder: Path, name: str) -> Path:
    """Write the experiment of a copied run as a user of this version has it."""
    experiment = read_stored((folder / name / "experiment.yaml").read_text(), name)
    path = folder / f"{name}.yaml"
    path.write_text(dump_experiment(experiment))
    return path


@contextmanager
def resumed(tmp_path: Path, name: str) -> Iterator[tuple[Path, Process]]:
    """A copy of a run that `seedbed train` goes on with. Its paths are relative to the copy."""
    shutil.copytree(FIXTURES / name, tmp_path / name)
    settings = [f"--set={setting}" for setting in (GOALS[name], *QUIET)]
    process = Process(
        tmp_path / "output", "train", str(converted(tmp_path, name)), "--run-dir", name, *settings,
        cwd=tmp_path,
    )  # fmt: skip
    try:
        yield tmp_path / name, process
    finally:
        process.popen.kill()
        process.popen.wait()


def check_lines(said: str, *allowed: str) -> None:
    """No setting has changed but the allowed ones."""
    lines = re.findall(r"^.*resume: (.*)$", said, re.MULTILINE)
    assert lines
    changed = {line.partition(":")[0] for line in lines if not line.startswith("from ")}
    assert changed <= {*ALLOWED, *allowed}, said


def check_summary(summary: dict[str, Any], name: str) -> None:
    """The counters have gone on from those of the newest checkpoint."""
    before = EXPECTED[name]["newest"]["counters"]
    for counter in ("env_frames", "updates", "episodes", "seconds", "dollars", "trained_frames"):
        assert summary[counter] > before[counter], counter
    key, goal = GOALS[name].removeprefix("stop.").split("=")
    # On from there, and not from zero: a run of that goal alone would be of the same size.
    assert summary[key] < 2 * int(goal)
    kept = summary["inserted_frames"] or summary["trained_frames"]
    assert summary["env_frames"] == kept + summary["discarded_frames"]


@pytest.mark.parametrize("name", ["vtrace", "dqn"])
def test_a_run_goes_on(name: str, tmp_path: Path) -> None:
    with resumed(tmp_path, name) as (_, process):
        assert process.wait(DEADLINE_S) == 0, process.said
        check_lines(process.said)
        newest = EXPECTED[name]["newest"]
        assert f"{newest['file']} after {newest['updates']} updates" in process.said
        check_summary(process.summary(), name)


def test_a_replay_goes_on_with_what_its_files_hold(tmp_path: Path) -> None:
    with resumed(tmp_path, "r2d2") as (run, process):
        assert process.wait(DEADLINE_S) == 0, process.said
        check_lines(process.said)
        check_summary(process.summary(), "r2d2")
        log = (run / "logs" / "learner.log").read_text()
    replay = EXPECTED["r2d2"]["replay"]
    assert (replay["held"], replay["sampleable_when_opened"]) == (240, 236)
    assert "240 of 240 sequences are stored, 236 can be sampled" in log


@pytest.mark.slow
def test_several_learners_go_on(tmp_path: Path) -> None:
    with resumed(tmp_path, "gossip") as (run, process):
        assert process.wait(DEADLINE_S) == 0, process.said
        logs = [path.read_text() for path in (run / "logs").glob("learner-*.log")]
        assert len(logs) == 2
        for log in logs:
            check_lines(log, "gossip.addresses")
        for rank in range(2):
            newest = EXPECTED[f"gossip-learner-{rank}"]["newest"]
            status = json.loads((run / f"learner-{rank}" / "status.json").read_text())
            for counter in ("env_frames", "updates", "episodes"):
                # One of them may come late, when the other one has made the frames of both.
                assert status["counters"][counter] >= newest["counters"][counter]
        before = [EXPECTED[f"gossip-learner-{rank}"]["newest"]["counters"] for rank in range(2)]
        frames = process.summary()["env_frames"]
        assert sum(each["env_frames"] for each in before) < frames < 2 * 10500


def test_a_policy_plays_as_0_1_0_played_it(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "vtrace", tmp_path / "vtrace")
    expected = EXPECTED["vtrace"]
    # The option of 0.1.0 has another name now.
    given = [
        word.replace("--environments", "--num-envs") for word in expected["evaluate_arguments"]
    ]
    arguments = ["evaluate", "vtrace", *given]
    process = Process(tmp_path / "output", *arguments, cwd=tmp_path)
    assert process.wait(DEADLINE_S) == 0, process.said
    result = process.summary()
    for key in ("returns", "mean", "env_frames", "updates", "policy", "protocol"):
        assert result[key] == expected["evaluate"]["newest"][key], key
    assert Path(result["checkpoint"]).name == expected["newest"]["file"]
