"""Successive halving: ranks follow from all seeds of a setting, and a decision stays."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.cli.main import main
from seedbed.config.load import dump_experiment
from seedbed.runs.evaluations import append_evaluation
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.sets.confirmation import confirmation
from seedbed.sets.ends import write_ends
from seedbed.sets.folder import Member, Written, sweep_file, write_set
from seedbed.sets.halving import decide, describe_decision, members_at_rungs
from seedbed.sets.resolve import resolve
from seedbed.sets.runs import load_runs
from seedbed.sets.stopped import mark_stopped
from seedbed.sets.sweep import read_sweep
from tests.support.processes import START_S, Process, children, guarded, parent
from tests.support.waiting import wait_for

LR = "learner.optimizer.learning_rate"
STOP = ("stop.env_frames=9000", "stop.mean_return=null")
Score = Callable[[Member, int], float]


def write(folder: Path, rates: Iterable[float], seeds: int = 3) -> Written:
    settings = [f"{LR}={','.join(map(str, rates))}", *STOP]
    options = {"seeds": seeds, "halving": {"first": 1000, "factor": 3}}
    return write_set(folder, resolve(read_sweep("cartpole-vtrace", settings, options), "a sweep"))


def rate(member: Member) -> float:
    return float(member.values[LR])


def reach(member: Member, score: float) -> None:
    """Leave the files of a run that has reached its rung."""
    assert member.rung is not None
    frames = member.rung.frames + 7
    member.run.mkdir(parents=True, exist_ok=True)
    (member.run / "experiment.yaml").write_text(dump_experiment(member.experiment))
    evaluation = {"env_frames": frames, "updates": frames, "episodes": 20, "policy": "sample",
                  "mean": score, "checkpoint": f"checkpoint-{frames}"}  # fmt: skip
    append_evaluation(member.run, evaluation)
    counters = {"env_frames": frames, "seconds": 60.0, "dollars": 0.01}
    (member.run / "status.json").write_text(json.dumps({"counters": counters}))
    end = {"updates": frames, "stop_reason": "stop.env_frames: reached", "evaluation": evaluation}
    (member.run / "summary.json").write_text(json.dumps({**counters, **end}))


def train(folder: Path, score: Score) -> None:
    """Let every run reach its present rung."""
    for member in members_at_rungs(folder):
        if not member.is_pruned and not member.is_finished:
            assert member.rung is not None
            reach(member, score(member, member.rung.frames))


def settings(members: Iterable[Member]) -> set[float]:
    return {rate(member) for member in members}


def test_the_settings_that_go_on_are_the_best_by_the_mean_of_all_seeds(tmp_path: Path) -> None:
    rates = [round(1e-3 * (1 + at), 6) for at in range(20)]
    write(tmp_path, rates)
    noise = np.random.default_rng(1).normal(0, 30, (20, 3, 3))

    def score(member: Member, frames: int) -> float:
        at, rung = rates.index(rate(member)), [1000, 3000, 9000].index(frames)
        return float(100 + at + noise[at, member.experiment.seed - 1, rung])

    alive, expected = list(range(20)), []
    for rung in (0, 1):
        means = {at: sum(100 + at + noise[at, seed, rung] for seed in range(3)) / 3 for at in alive}
        best = sorted(alive, key=lambda at: means[at])[-math.ceil(len(alive) / 3) :]
        alive = sorted(best)
        expected.append({rates[at] for at in alive})
    for number, best in enumerate(expected):
        assert decide(tmp_path) is None, "runs have still to come"
        train(tmp_path, score)
        decision = decide(tmp_path)
        assert decision is not None
        assert decision["frames"] == (1000, 3000)[number]
        going = [one for one in members_at_rungs(tmp_path) if not one.is_pruned]
        assert settings(going) == best
        assert len(going) == 3 * len(best), "all seeds of a setting go on"
    train(tmp_path, score)
    assert decide(tmp_path) is None
    ended = [one for one in members_at_rungs(tmp_path) if one.is_finished and not one.is_pruned]
    assert settings(ended) == expected[-1]
    assert {one.summary()["env_frames"] for one in ended} == {9007}


def test_a_setting_with_a_lost_seed_is_below_all_whole_ones(tmp_path: Path) -> None:
    write(tmp_path, [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 7e-3])
    scores = {1e-3: 10.0, 2e-3: 20.0, 3e-3: 20.0, 4e-3: math.nan, 5e-3: 99, 6e-3: 99, 7e-3: 20.0}
    first = {rate(one): one for one in reversed(members_at_rungs(tmp_path))}
    write_ends(first[5e-3], [{"code": ExitCode.DIVERGED, "cause": "NaN", "env_frames": 0}])
    mark_stopped(first[6e-3])
    for member in members_at_rungs(tmp_path):
        if member.name not in (first[5e-3].name, first[6e-3].name):
            reach(member, scores[rate(member)])
    decision = decide(tmp_path)
    assert decision is not None
    assert [row["setting"].partition("=")[2] for row in decision["ranking"]] == [
        "0.002", "0.003", "0.007", "0.001", "0.004", "0.005", "0.006"
    ]  # fmt: skip
    assert [row["goes_on"] for row in decision["ranking"]] == [True, True, True, *[False] * 4]
    assert all(row["scores"] == [] for row in decision["ranking"][4:]), "no mean of the others"
    text = describe_decision(decision)
    assert "rung at 1,000 frames: 3 of 7 settings go on" in text
    assert f"last that goes on: {LR}=0.007, mean return 20.0, 95 % interval [20.0, 20.0]" in text
    assert f"first pruned: {LR}=0.001, mean return 10.0" in text
    assert f"{first[5e-3].name}: exit code {ExitCode.DIVERGED:d} (DIVERGED)" in text
    assert f"{first[6e-3].name}: stopped by a person" in text
    assert f"{first[4e-3].name}: score nan" in text
    found = {group["label"]: group for group in load_runs(tmp_path).compare()["groups"]}
    assert found["lr=0.001"]["states"] == {"pruned": 3}


def test_a_tie_and_noise_are_told(tmp_path: Path) -> None:
    write(tmp_path, [1e-3, 2e-3])
    train(tmp_path, lambda member, _: 5.0 + member.experiment.seed)
    decision = decide(tmp_path)
    assert decision is not None
    assert settings(one for one in members_at_rungs(tmp_path) if one.is_pruned) == {2e-3}
    assert "a tie, in which the order of the settings decides" in describe_decision(decision)
    other = tmp_path / "other"
    write(other, [1e-3, 2e-3])
    train(other, lambda one, _: 100.0 * one.experiment.seed + (rate(one) == 2e-3))
    decision = decide(other)
    assert decision is not None
    assert settings(one for one in members_at_rungs(other) if one.is_pruned) == {1e-3}
    assert "within the noise (p = 0.9" in describe_decision(decision)


def test_all_settings_with_a_lost_seed_are_not_ranked(tmp_path: Path) -> None:
    write(tmp_path, [1e-3, 2e-3], seeds=1)
    for member in members_at_rungs(tmp_path):
        write_ends(member, [{"code": 42, "cause": "NaN", "env_frames": 0}])
    with pytest.raises(SeedbedError, match="every setting has lost a run") as caught:
        decide(tmp_path)
    assert caught.value.code == ExitCode.SET_FAILED
    train(tmp_path, lambda member, _: rate(member))
    assert decide(tmp_path) is not None, "a run that failed and has reached the rung counts"


def test_a_decision_stays_and_what_is_added_is_ranked_beside_it(tmp_path: Path) -> None:
    write(tmp_path, [1e-3, 2e-3, 3e-3, 4e-3], seeds=2)
    train(tmp_path, lambda member, _: 1000 * rate(member))
    assert decide(tmp_path) is not None
    kept = {3e-3, 4e-3}
    before = (tmp_path / "set/halving.json").read_text()
    for member in members_at_rungs(tmp_path):  # evaluated again, with another result
        if member.is_pruned:
            row = {"env_frames": 1007, "checkpoint": "checkpoint-1007", "mean": 1e9}
            append_evaluation(member.run, row)
    assert decide(tmp_path) is None
    assert (tmp_path / "set/halving.json").read_text() == before
    write(tmp_path, [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 3.5e-3, 2.5e-3], seeds=3)
    members = members_at_rungs(tmp_path)
    assert settings(one for one in members if one.is_pruned) == {1e-3, 2e-3}
    train(tmp_path, lambda member, _: 1000 * rate(member))
    decision = decide(tmp_path)
    assert decision is not None
    assert decision["frames"] == 1000
    members = members_at_rungs(tmp_path)
    assert settings(one for one in members if not one.is_pruned) == {*kept, 3.5e-3, 5e-3}
    assert decide(tmp_path) is None, "the added settings have still to reach the next rung"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            ["stop.env_frames=0", "stop.updates=9"],
            "the last rung is stop.env_frames, which is not set",
        ),
        (["stop.env_frames=1000"], "must be below stop.env_frames, 1,000"),
        (["learner.batch_size=200"], "one batch of each learner of a run, together at least 2,000"),
        (["gossip.replicas=4", "learner.batch_size=50"], "together at least 2,000 frames"),
        ([f"{LR}=1e-3"], "a ranking takes two"),
        (["stop.mean_return=475"], "set it to null"),
        (["stop.dollars=1"], "set it to 0"),
        (["evaluation.at_end=false"], "set evaluation.at_end to true"),
        (["evaluation.episodes=5,10"], "evaluation.episodes is an axis"),
        (["environment.id=CartPole-v1,Acrobot-v1"], "different environments do not compare"),
    ],
)
def test_rungs_without_a_ranking_are_refused(
    words: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = dict(word.split("=") for word in (f"{LR}=1e-3,1e-2", *STOP, *words))
    options = [f"--set={key}={value}" for key, value in settings.items()]
    command = ["sweep", "cartpole-vtrace", *options, "--halving=1000", f"--out={tmp_path}"]
    assert main([*command, "--dry-run"]) == ExitCode.CONFIG
    assert part in capsys.readouterr().err


def test_the_plan_tells_each_rung_and_lines_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [f"--set={word}" for word in (f"{LR}=1e-3,2e-3,3e-3,4e-3", *STOP)]
    command = ["sweep", "cartpole-vtrace", *options, f"--out={tmp_path}/a", "--seeds=2"]
    assert main([*command, "--halving=1000", "--dry-run"]) == 0
    plan = capsys.readouterr().err
    assert "8 runs, 4 settings with 2 seeds each, 28.0K frames" in plan
    assert "rung 1, to 1,000 frames: 4 settings, 8 runs, 8,000 frames" in plan
    assert "rung 2, to 3,000 frames: 2 settings, 4 runs, 8,000 frames" in plan
    assert "rung 3, to 9,000 frames: 1 setting, 2 runs, 12,000 frames" in plan
    for word in ("--print", "--line=1"):
        assert main([*command, "--halving=1000", word]) == ExitCode.USAGE
        assert "halving ranks all of them at each rung" in capsys.readouterr().err
    # The folder keeps its rungs, and rungs with decisions do not move.
    write(tmp_path / "b", [1e-3, 2e-3])
    train(tmp_path / "b", lambda member, _: rate(member))
    assert decide(tmp_path / "b") is not None
    for word in ("--halving=500", "--halving=0"):
        assert main(["sweep", f"{tmp_path}/b", word, "--dry-run"]) == ExitCode.RESUME_REFUSED
        assert "has pruned settings at 1,000 frames" in capsys.readouterr().err
    assert main(["sweep", f"{tmp_path}/b", "--dry-run"]) == 0


def test_pruned_runs_are_counted_in_status_and_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, [1e-3, 2e-3, 3e-3])
    train(tmp_path, lambda member, frames: 1e3 * rate(member) + frames)

    def result(command: str, *words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main([command, str(tmp_path), "--json", *words]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    assert result("status")["states"] == {"at its rung": 9}
    states = [group["states"] for group in result("compare")["groups"]]
    assert states == [{"at its rung": 3}] * 3, "a rung is no end"
    while decide(tmp_path) is not None:
        train(tmp_path, lambda member, frames: 1e3 * rate(member) + frames)
    status = result("status")
    assert status["states"] == {"pruned": 6, "finished": 3}
    compared = result("compare")
    assert list(compared["differs"]["settings"]) == [LR], "a rung is no setting"
    best, *others = compared["groups"]
    assert (best["label"], best["states"]) == ("lr=0.003", {"finished": 3})
    assert [other["states"] for other in others] == [{"pruned": 3}] * 2
    assert (
        "every other one was pruned or lost before. Not confirmed: it is the best of 3"
        in (compared["sentence"])
    )
    sweep = read_sweep(sweep_file(tmp_path))
    fresh = confirmation(tmp_path, resolve(sweep, "a sweep"), seeds=2).runs
    assert {run.values[LR] for run in fresh} == {3e-3, 2e-3}, "the last pruned one beside the best"
    early = result("compare", "--at", "1007")
    assert [len(group["final"]["scores"]) for group in early["groups"]] == [3, 3, 3]


SMALL = """
name: small
environment: {id: CartPole-v1}
agent: vtrace
actor: {processes: 1, envs_per_group: 2}
learner: {network: mlp, frame_stack: 1, unroll_length: 8, batch_size: 4, deterministic: true}
evaluation: {episodes: 5, num_envs: 1}
logging: {interval_s: 0.1}
stop: {env_frames: 2000}
"""


@pytest.mark.slow
def test_decisions_after_kill_9_in_each_rung_are_those_of_an_undisturbed_set(
    tmp_path: Path,
) -> None:
    source = tmp_path / "small.yaml"
    source.write_text(SMALL)
    words = ("sweep", str(source), "--set", f"{LR}=1e-3,1e-2", "--halving", "1000",
             "--parallel", "2")  # fmt: skip
    calm = Process(tmp_path / "a", *words, "--out", str(tmp_path / "calm"))
    assert calm.wait() == 0, calm.said
    assert "rung at 1,000 frames: 1 of 2 settings go on" in calm.said

    folder = tmp_path / "killed"
    killed = Process(tmp_path / "b", *words, "--out", str(folder))
    wait_for(lambda: killed.runs() or children(killed.pid), "it trains", START_S)
    trains = children(killed.pid)
    begun = folder / "runs" / "small-lr-1e-3-s1" / "status.json"
    wait_for(lambda: killed.runs() or begun.exists(), f"a run: {killed.said}", START_S)
    killed.send(signal.SIGKILL)
    killed.wait()
    wait_for(lambda: not any(map(parent, trains)), "the runs end with the set", START_S)
    again = Process(tmp_path / "c", *words, "--out", str(folder))
    wait_for(lambda: again.runs() or "go on" in again.said, f"a rung: {again.said}", START_S * 4)
    ended = (folder / "runs").glob
    wait_for(lambda: again.runs() or len(list(ended("*/summary.json"))) == 1, "the best", START_S)
    (best,) = children(again.pid)
    os.kill(guarded(best), signal.SIGKILL)
    assert again.wait() == 0, again.said
    assert "killed by signal 9" in again.said
    assert (len(again.summary()["finished"]), len(again.summary()["pruned"])) == (1, 1)
    shown = Process(tmp_path / "d", "status", str(folder), "--json")
    assert shown.wait() == 0
    rows = json.loads((tmp_path / "d" / "stdout").read_text())["runs"]
    assert sorted((one["state"], round(one["done"], 1)) for one in rows) == [
        ("finished", 1.0), ("pruned", 0.5)
    ]  # fmt: skip
    decisions = [(one / "set/halving.json").read_text() for one in (tmp_path / "calm", folder)]
    assert decisions[0] == decisions[1]
    scores = [[[each.mean for each in run.evaluations] for run in load_runs(one).records]
              for one in (tmp_path / "calm", folder)]  # fmt: skip
    assert scores[0] == scores[1]
