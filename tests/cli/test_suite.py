"""`seedbed suite`: one file becomes 57 experiments, and their runs become a column of Table 10."""

from __future__ import annotations

import json
import math
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
from seedbed.runs.suite import Member, read_suite
from seedbed.runtime.exit_codes import ExitCode
from tests.support.chart import ROOT
from tests.support.processes import Process

R2D2 = ROOT / "experiments" / "atari-r2d2.yaml"
CARTPOLE = "name: {name}\nenvironment: {{id: {id}}}\nstop: {{env_frames: 1000}}\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Two seeds of Pong and of Breakout."""
    folder = tmp_path / "suite"
    assert prepare(folder, "--seeds", "2", "--games", "pong,Breakout") == 0
    return folder


def prepare(folder: Path, *words: str, experiment: str = str(R2D2)) -> int:
    return main(
        ["suite", "prepare", "atari57", "--experiment", experiment, "--out", str(folder), *words]
    )


def run_of(folder: Path, name: str) -> Member:
    return next(member for member in read_suite(folder) if member.name == name)


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


def test_one_file_becomes_57_experiments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "suite"
    assert prepare(folder, "--set", "learner.batch_size=32") == 0
    said = capsys.readouterr().err
    # 57 games of 40e9 frames, at $19.3 for 1e9.
    assert "57 experiments, 57 games, 40.0G frames each" in said
    assert f"${57 * 40 * 19.3:,.2f} (${40 * 19.3:,.2f} each)" in said
    source = load_experiment(R2D2, ["learner.batch_size=32"])
    members = read_suite(folder)
    assert {one.experiment.environment.id for one in members} == {f"atari:{x}" for x in scores()}
    for member in members:
        experiment = member.experiment
        assert member.file.name == f"{experiment.name}.yaml"
        assert same_but_game(experiment) == same_but_game(source)
    assert run_of(folder, "atari-r2d2-ms-pacman-1").experiment.environment.id == "atari:MsPacman"
    # Defaults stay defaults, as in a file that a person writes.
    written = yaml.safe_load((folder / "atari-r2d2-pong-1.yaml").read_text())
    assert written["learner"]["batch_size"] == 32
    assert "gossip" not in written


def same_but_game(experiment: Experiment) -> dict[str, Any]:
    tree = experiment.model_dump(exclude={"name", "seed"})
    del tree["environment"]["id"]
    return tree


def test_seeds_are_added_and_what_is_there_is_kept(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = suite / "atari-r2d2-pong-1.yaml"
    first.write_text(f"# a note of mine\n{first.read_text()}")
    assert prepare(suite, "--seeds", "3", "--games", "Pong,Breakout") == 0
    assert "2 files written" in capsys.readouterr().err
    assert first.read_text().startswith("# a note of mine")
    assert [(x.experiment.seed, x.name) for x in read_suite(suite)] == [
        (seed, f"atari-r2d2-{game}-{seed}") for seed in (1, 2, 3) for game in ("breakout", "pong")
    ], "the first seed of every game first"
    before = sorted(suite.iterdir())
    assert prepare(suite, "--seeds", "4", "--set", "learner.batch_size=32") == ExitCode.CONFIG
    assert "there with other settings" in capsys.readouterr().err
    assert sorted(suite.iterdir()) == before, "nothing is written"


def test_names_fit_a_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longest = "n" * (53 - len("-montezuma-revenge-1"))
    assert prepare(tmp_path / "fits", "--set", f"name={longest}") == 0
    assert max(len(one.name) for one in read_suite(tmp_path / "fits")) == 53
    assert prepare(tmp_path / "long", "--set", f"name={longest}n") == ExitCode.CONFIG
    said = capsys.readouterr().err
    assert "has 54 letters, and a release has at most 53: shorten" in said
    assert not (tmp_path / "long").exists()


def test_each_run_has_folders_of_its_own(tmp_path: Path) -> None:
    words = ("--games", "Pong,Qbert", "--set", "learner.checkpoint.directory=gs://bucket/atari/")
    assert prepare(tmp_path / "suite", *words) == 0
    found = {x.experiment.learner.checkpoint.directory for x in read_suite(tmp_path / "suite")}
    assert found == {f"gs://bucket/atari/atari-r2d2-{game}-1" for game in ("pong", "qbert")}


@pytest.mark.parametrize(
    ("experiment", "words", "code", "said"),
    [
        (str(R2D2), ("--games", "Pongg"), ExitCode.USAGE, "'Pongg' is none of the 57 games; did"),
        ("cartpole-vtrace", (), ExitCode.CONFIG, "plays CartPole-v1, which is no Atari game"),
        (str(R2D2), ("--set", "stop.env_frames=0"), ExitCode.CONFIG, "would never end"),
    ],
)
def test_what_cannot_be_a_suite_is_named(
    experiment: str,
    words: tuple[str, ...],
    code: ExitCode,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert prepare(tmp_path / "suite", *words, experiment=experiment) == code
    assert said in capsys.readouterr().err
    assert main(["suite", "table", str(tmp_path)]) == ExitCode.RUN_DIRECTORY
    assert "`seedbed suite prepare atari57" in capsys.readouterr().err


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
    evaluate(run_of(suite, "atari-r2d2-pong-1"), -21.0, 1e9)  # an older one, that does not count
    evaluate(run_of(suite, "atari-r2d2-pong-1"), 10.0, 3e10)
    finish(run_of(suite, "atari-r2d2-pong-2"), 20.0)
    evaluate(run_of(suite, "atari-r2d2-breakout-1"), 400.0)
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
    evaluate(run_of(suite, "atari-r2d2-breakout-2"), 300.0)
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
    evaluate(run_of(suite, "atari-r2d2-pong-1"), 21.0, by_table_9=False)
    (suite / "pole.yaml").write_text(CARTPOLE.format(name="pole", id="CartPole-v1"))
    found = result(suite, capsys)
    assert all(row["ours"] is None for row in found["games"])
    left_out = [remark for remark in found["remarks"] if remark.endswith("left out.")]
    assert len(left_out) == 2
    assert any("pole plays CartPole-v1" in one for one in left_out)
    assert any("atari-r2d2-pong-1 was not evaluated by Table 9" in one for one in left_out)


def test_a_run_is_finished_with_its_stop_condition_and_its_evaluation(suite: Path) -> None:
    member = run_of(suite, "atari-r2d2-pong-1")
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


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    for name, environment in (("done", "CartPole-v1"), ("one", "None-v1"), ("two", "None-v2")):
        (suite / f"{name}.yaml").write_text(CARTPOLE.format(name=name, id=environment))
    done = run_of(suite, "done")
    done.run.mkdir(parents=True)
    (done.run / "experiment.yaml").write_text(dump_experiment(done.experiment))
    summary = {"updates": 9, "evaluation": {"updates": 9}}
    (done.run / "summary.json").write_text(json.dumps(summary))
    process = Process(tmp_path / "process", "suite", "run", str(suite))
    assert process.wait() == ExitCode.SUITE_FAILED, process.said
    assert process.summary() == {"finished": ["done"], "failed": {"one": 11, "two": 11}, "runs": 3}
    lines = process.said.splitlines()
    assert not any(line.startswith("done:") for line in lines), "a finished run is not started"
    assert any("one: failed with exit code 11 (ENVIRONMENT): seedbed: env" in one for one in lines)
    assert "2 of 3 runs failed: one: exit code 11" in process.last_lines()[0]
    assert "'None-v1'" in (suite / "runs/one.log").read_text()


def test_two_names_are_two_runs(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (suite / "atari-r2d2-pong-1.yaml").read_text()
    (suite / "copy.yaml").write_text(text)
    assert main(["suite", "run", str(suite)]) == ExitCode.CONFIG
    assert "have the same name, atari-r2d2-pong-1" in capsys.readouterr().err
