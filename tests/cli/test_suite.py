"""`seedbed suite`: the runs of the 57 games become a column of Table 10."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli.main import main
from seedbed.config import Experiment, load_experiment
from seedbed.config.load import dump_experiment
from seedbed.evaluation.atari57 import scores
from seedbed.papers.seed_atari import table_10
from seedbed.runs.evaluations import append_evaluation
from seedbed.sets.folder import Member, read_members
from tests.support.chart import ROOT

R2D2 = ROOT / "experiments" / "atari-r2d2.yaml"
CARTPOLE = "name: {name}\nenvironment: {{id: {id}}}\nstop: {{env_frames: 1000}}\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Two seeds of Pong and of Breakout."""
    folder = tmp_path / "suite"
    games = "environment.id=atari:Pong,atari:Breakout"
    words = ("--seeds", "2", "--set", games, "--out", str(folder), "--print")
    assert main(["sweep", "atari57", *words]) == 0
    return folder


def run_of(folder: Path, name: str) -> Member:
    return next(member for member in read_members(folder) if member.name == name)


def evaluate(member: Member, mean: float, frames: float = 4e10, by_table_9: bool = True) -> None:
    """Append a row to evaluations.csv as a run of an Atari game does."""
    member.run.mkdir(parents=True, exist_ok=True)
    game = member.experiment.environment.id.removeprefix("atari:")
    row = {
        "env_frames": frames, "updates": frames / 1e3, "episodes": 200, "mean": mean,
        "human_normalised": scores()[game].normalise(mean) if by_table_9 else None,
        "checkpoint": f"checkpoint-{frames:.0f}",
    }  # fmt: skip
    append_evaluation(member.run, row)


def finish(member: Member, mean: float, **summary: Any) -> None:
    """Leave the files of a run that has met its stop condition."""
    evaluate(member, mean)
    (member.run / "experiment.yaml").write_text(dump_experiment(member.experiment))
    found = {"updates": 9, "evaluation": {"updates": 9}, "stop_reason": "x", **summary}
    (member.run / "summary.json").write_text(json.dumps(found))


def test_a_shipped_sweep_is_57_experiments(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    words = ("--set", "learner.batch_size=32", "--out", str(folder), "--print")
    assert main(["sweep", "atari57", *words]) == 0
    source = load_experiment(R2D2, ["learner.batch_size=32"])
    members = read_members(folder)
    assert {one.experiment.environment.id for one in members} == {f"atari:{x}" for x in scores()}
    for member in members:
        assert member.file.name == f"{member.experiment.name}.yaml"
        assert same_but_game(member.experiment) == same_but_game(source)
    found = run_of(folder, "atari57-env-ms-pacman-s1").experiment
    assert found.environment.id == "atari:MsPacman"
    # Defaults stay defaults, as in a file that a person writes.
    written = yaml.safe_load((folder / "atari57-env-pong-s1.yaml").read_text())
    assert written["learner"]["batch_size"] == 32
    assert "gossip" not in written


def same_but_game(experiment: Experiment) -> dict[str, Any]:
    tree = experiment.model_dump(exclude={"name", "seed"})
    del tree["environment"]["id"]
    return tree


def page(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["suite", "table", str(folder)]) == 0
    return capsys.readouterr().out


def result(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["suite", "table", str(folder), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_table_without_runs_is_the_papers(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page(suite, capsys)
    assert max(map(len, text.splitlines())) <= 120
    for game, row in table_10().items():
        (line,) = (one.split() for one in text.splitlines() if one.startswith(f"{game} "))
        assert line[3:6] == [*row, "-"]
        assert line[2] == f"{scores()[game].human:.1f}"
        assert line[-1] == "-"
    assert "0 of 4 runs are finished" in text
    assert "no run has an evaluation yet" in text
    assert "* Section 4.3 states 1880 %" in text


def test_scores_of_runs_are_beside_the_papers(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(run_of(suite, "atari57-env-pong-s1"), -21.0, 1e9)  # an older one, that does not count
    evaluate(run_of(suite, "atari57-env-pong-s1"), 10.0, 3e10)
    finish(run_of(suite, "atari57-env-pong-s2"), 20.0)
    evaluate(run_of(suite, "atari57-env-breakout-s1"), 400.0)
    found = result(suite, capsys)
    assert (found["runs"], found["finished"]) == (4, 1)
    games = {row["game"]: row for row in found["games"]}
    pong = games["Pong"]["ours"]
    assert pong["mean"] == 15.0
    assert pong["standard_error"] == pytest.approx(statistics.stdev([10.0, 20.0]) / math.sqrt(2))
    assert pong["env_frames"] == 3e10
    assert games["Pong"]["human_normalised"]["ours"] == pytest.approx((15 + 20.7) / (14.6 + 20.7))
    assert games["Breakout"]["ours"]["standard_error"] is None
    assert games["Alien"]["ours"] is None
    whole, own = found["aggregates"]
    assert (whole["games"], whole["ours"]) == (57, None)
    assert own["games"] == 2
    means = [(15 + 20.7) / 35.3, (400 - 1.7) / (30.5 - 1.7)]
    assert own["ours"]["median"] == pytest.approx(statistics.mean(means))
    assert own["r2d2"]["mean"] == pytest.approx(
        statistics.mean([(21 + 20.7) / 35.3, (837.7 - 1.7) / 28.8])
    )
    assert own["intervals"] is None
    assert any("two seeds of each game" in remark for remark in found["remarks"])
    # With a second seed of each game there are intervals, around the numbers.
    evaluate(run_of(suite, "atari57-env-breakout-s2"), 300.0)
    own = result(suite, capsys)["aggregates"][1]
    for name, (low, high) in own["intervals"].items():
        assert low < own["ours"][name] < high
    text = page(suite, capsys)
    assert "over the 2 of ours" in text
    assert "± 5.0      2   30.0G" in text
    assert max(map(len, text.splitlines())) <= 120


def test_what_does_not_compare_is_left_out_and_named(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(run_of(suite, "atari57-env-pong-s1"), 21.0, by_table_9=False)
    shutil.rmtree(suite / "set")  # a folder of experiments alone
    (suite / "pole.yaml").write_text(CARTPOLE.format(name="pole", id="CartPole-v1"))
    found = result(suite, capsys)
    assert all(row["ours"] is None for row in found["games"])
    left_out = [remark for remark in found["remarks"] if remark.endswith("left out.")]
    assert len(left_out) == 2
    assert any("pole plays CartPole-v1" in one for one in left_out)
    assert any("atari57-env-pong-s1 was not evaluated by Table 9" in one for one in left_out)


def test_a_run_is_finished_with_its_stop_condition_and_its_evaluation(suite: Path) -> None:
    member = run_of(suite, "atari57-env-pong-s1")
    assert not member.is_finished
    finish(member, 21.0, evaluation={"updates": 8})
    assert not member.is_finished, "a signal ended the last evaluation"
    finish(member, 21.0)
    assert member.is_finished
    # Of several learners, the average has another number of updates.
    finish(member, 21.0, evaluation={"updates": 3}, learners=[])
    assert member.is_finished
    member.file.write_text(member.file.read_text().replace("40000000000", "50000000000"))
    assert not run_of(suite, member.name).is_finished, "the condition was raised"
