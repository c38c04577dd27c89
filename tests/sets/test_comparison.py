"""`seedbed compare`: what differs comes first, and nothing is claimed that the runs do not show."""

from __future__ import annotations

import csv
import itertools
import json
import math
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seedbed
from seedbed.cli.main import main
from seedbed.config.load import dump_experiment, load_experiment
from seedbed.runs.evaluations import append_evaluation
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.sets.folder import read_members, write_set
from seedbed.sets.records import read_record
from seedbed.sets.resolve import resolve
from seedbed.sets.states import member_of
from seedbed.sets.stopped import mark_stopped
from seedbed.sets.sweep import read_sweep

LR = "learner.optimizer.learning_rate"
SIZE = "learner.batch_size"


def record(
    folder: Path,
    name: str,
    *settings: str,
    seed: int = 1,
    scores: dict[float, float] | None = None,
    reason: str = "stop.env_frames: 1000 of 1000",
    frames: float = 1000,
    episodes: int = 20,
    human: float | None = None,
    code: int | None = None,
    commit: str = "abc",
) -> Path:
    """Leave the files of a run, of which the evaluations are `scores` by frames."""
    run = folder / "runs" / name
    run.mkdir(parents=True)
    experiment = load_experiment("cartpole-vtrace", [*settings, f"seed={seed}"])
    (run / "experiment.yaml").write_text(dump_experiment(experiment))
    for at, mean in (scores or {}).items():
        row = {"env_frames": at, "updates": at, "episodes": episodes, "policy": "sample",
               "mean": mean, "checkpoint": f"checkpoint-{at:.0f}",
               "training_seconds": at / frames * 60, "human_normalised": human}  # fmt: skip
        append_evaluation(run, row)
    counters = {"env_frames": frames, "seconds": 60.0, "dollars": 0.01}
    (run / "status.json").write_text(json.dumps({"counters": counters}))
    start = {"version": "0.2.0", "commit": commit, "clean": True, "python": "3.11",
             "machine": f"host-of-{name}, x86_64, 2 CPUs", "changes": []}  # fmt: skip
    (run / "history.json").write_text(json.dumps({"starts": [start], "packages": {}}))
    if code is not None:
        ends = folder / "set" / "ends"
        ends.mkdir(parents=True, exist_ok=True)
        (ends / f"{name}.json").write_text(json.dumps([{"code": code}]))
    elif reason:
        ended = {**counters, "stop_reason": reason, "updates": 9, "evaluation": {"updates": 9}}
        (run / "summary.json").write_text(json.dumps(ended))
    return run


def compared(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["compare", str(folder), *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(
        capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"no JSON: {word}")
    )
    return found


def page(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    capsys.readouterr()
    assert main(["compare", str(folder), *words]) == 0
    return capsys.readouterr().out


def two_rates(folder: Path, worse: float, seeds: int = 5) -> None:
    noise = np.random.default_rng(0).normal(0, 1, (2, seeds))
    for seed in range(1, seeds + 1):
        for row, (rate, mean) in enumerate(((1e-3, 100.0), (1e-2, 100.0 - worse))):
            score = mean + float(noise[row, seed - 1])
            record(folder, f"lr-{rate}-s{seed}", f"{LR}={rate}", seed=seed, scores={1000: score})


def test_the_better_setting_is_named_with_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_rates(tmp_path, worse=5)
    found = compared(capsys, tmp_path)
    assert found["differs"] == {"settings": {LR: [0.001, 0.01]}, "setup": {}}
    best, other = found["groups"]
    assert (best["label"], other["label"]) == ("lr=0.001", "lr=0.01")
    assert best["final"]["interval"][0] < best["final"]["mean"] < best["final"]["interval"][1]
    assert other["worse_than_best"]["differs"] is True
    assert "every other one is worse beyond the noise" in found["sentence"]
    assert "Not confirmed: it is the best of 2" in found["sentence"]
    text = page(capsys, tmp_path)
    assert f"{LR}: 0.001, 0.01" in text
    assert max(map(len, text.split("\n\n")[1].splitlines())) <= 120
    assert "| lr=0.001 | 5" in page(capsys, tmp_path, "--markdown")


def test_long_names_of_settings_stand_above_the_table_with_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for at in (8, 16):
        more = f"{LR}={at}e-7", f"vtrace.discount=0.9{at}5", f"learner.optimizer.epsilon={at}e-7"
        record(tmp_path, f"{at}", f"{SIZE}={at}", *more, scores={1000: -at})
    best, *_ = compared(capsys, tmp_path)["groups"]
    assert len(best["label"]) > 48
    for words in ((), ("--markdown",)):
        lines = [line.strip(" |") for line in page(capsys, tmp_path, *words).splitlines()]
        named = lines.index(f"(1)  {best['label']}")
        assert lines[named + 1].startswith("(2)  ")
        first = next(at for at, line in enumerate(lines) if line.startswith("(1) ") and at > named)
        assert "-8.00" in lines[first]
        assert any(line.startswith(best["label"]) for line in lines[first:]), "the sentence"


def test_a_score_that_is_no_number_is_that_of_a_diverged_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_rates(tmp_path, worse=50)
    record(tmp_path, "lr-0.001-s6", f"{LR}=1e-3", seed=6, scores={500: 1.0, 1000: math.nan})
    found = compared(capsys, tmp_path)
    assert [row["label"] for row in found["groups"]] == ["lr=0.01", "lr=0.001"]
    assert found["groups"][1]["states"] == {"finished": 5, "diverged": 1}


def test_a_difference_within_the_noise_is_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_rates(tmp_path, worse=0.1)
    assert "within the noise" in compared(capsys, tmp_path)["sentence"]
    assert " noise" in page(capsys, tmp_path)


def test_two_seeds_have_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_rates(tmp_path, worse=50, seeds=2)
    found = compared(capsys, tmp_path)
    assert found["groups"][0]["final"]["interval"] is None
    assert "fewer than three seeds" in found["sentence"]
    table = page(capsys, tmp_path).split("\n\n")[1]
    assert "95 %" not in table
    assert "100 %" not in table, "that the best is better"


def test_runs_that_end_at_a_score_are_compared_by_their_frames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(1, 6):
        record(tmp_path, f"fast-s{seed}", f"{LR}=1e-3", seed=seed, frames=100 + seed,
               scores={100: 400 - seed}, reason="stop.mean_return: 475 over 100")  # fmt: skip
        is_there = seed <= 3
        record(tmp_path, f"slow-s{seed}", f"{LR}=1e-2", seed=seed, frames=500 + seed,
               scores={500: 480}, reason="stop.mean_return: 475" if is_there else
               "stop.env_frames: 1000")  # fmt: skip
    found = compared(capsys, tmp_path)
    fast, slow = found["groups"]
    assert (fast["label"], found["ranked_by"], found["score"]) == ("lr=0.001", "to_score", 475)
    assert fast["to_score"]["median"] == 103
    assert (slow["to_score"]["reached"], slow["to_score"]["of"]) == (3, 5)
    assert slow["to_score"]["median"] == 503
    assert slow["worse_than_best"]["differs"] is True
    assert fast["final"] is None, "runs of unlike lengths have no finals"
    assert any("ended at a score: finals of runs of different lengths" in x for x in found["notes"])
    assert "reaches a mean return of 475 in 103 frames (median of 5 seeds)" in found["sentence"]
    # Of one whose last evaluation was cut off, the frames to the score are known all the same.
    cut = tmp_path / "runs" / "fast-s1" / "summary.json"
    whole = cut.read_text()
    cut.write_text(json.dumps({**json.loads(whole), "evaluation": None}))
    again = compared(capsys, tmp_path)["groups"][0]
    assert (again["states"], again["to_score"]["reached"]) == (
        {"unfinished": 1, "finished": 4}, 5,
    )  # fmt: skip
    cut.write_text(whole)
    # A score of evaluations that no training has ended by.
    other = compared(capsys, tmp_path, "--score", "450")
    assert other["groups"][0]["label"] == "lr=0.01"
    assert [row["to_score"]["reached"] for row in other["groups"]] == [5, 0]


def test_a_setting_with_a_lost_seed_ranks_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_rates(tmp_path, worse=50)
    lost = record(tmp_path, "lr-0.001-s6", f"{LR}=1e-3", seed=6, code=ExitCode.DIVERGED)
    found = compared(capsys, tmp_path)
    assert [row["label"] for row in found["groups"]] == ["lr=0.01", "lr=0.001"]
    assert found["groups"][1]["states"] == {"finished": 5, "diverged": 1}
    text = page(capsys, tmp_path)
    assert "5 of 6" in text
    assert "*: a mean of the others" in text
    (lost / "summary.json").write_text("{")  # a damaged file ends nothing
    assert compared(capsys, tmp_path)["runs"] == 11


def test_seeds_that_not_all_have_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_rates(tmp_path, worse=5)
    record(tmp_path, "lr-0.001-s9", f"{LR}=1e-3", seed=9, scores={1000: 1e6})
    found = compared(capsys, tmp_path)
    assert len(found["groups"][0]["final"]["scores"]) == 5
    assert "final: over the seeds that all groups have: 1, 2, 3, 4, 5" in found["notes"]


def test_a_run_that_was_stopped_in_its_last_evaluation_is_not_finished(tmp_path: Path) -> None:
    """The driver of the set does not count it as finished either."""
    run = record(tmp_path, "a")
    (tmp_path / "a.yaml").write_text((run / "experiment.yaml").read_text())
    assert read_record(run).state == "finished"
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "evaluation": None}))
    assert read_record(run).state == "unfinished"
    mark_stopped(member_of(run))
    assert read_record(run).state == "stopped"


def test_runs_that_go_beyond_one_stop_have_finals_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The frames under way at a stop of 20,000 are more than 2 % of it."""
    ends = ((20_134, 20_139), (20_205, 20_317), (20_532, 20_598))
    for rate, frames in zip(("3e-4", "1e-3", "3e-3"), ends, strict=True):
        for seed, at in enumerate(frames, 1):
            record(
                tmp_path, f"{rate}-s{seed}", f"{LR}={rate}", "stop.env_frames=20000", seed=seed,
                scores={at: at / 1000}, frames=at, reason="stop.env_frames: 20000 of 20000",
            )  # fmt: skip
    found = compared(capsys, tmp_path)
    assert found["horizon"] == 20_000
    assert [row["final"]["mean"] for row in found["groups"]] == pytest.approx(
        [20.565, 20.261, 20.1365]
    )


def test_a_winner_that_trained_longer_is_judged_at_the_end_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Short runs end far behind their stop: the winner more than any other."""
    for seed in (1, 2, 3):
        record(tmp_path, f"a-s{seed}", f"{LR}=0.01", "stop.env_frames=1000", seed=seed,
               scores={500: 1, 1020: 2}, frames=1020)  # fmt: skip
        record(tmp_path, f"b-s{seed}", f"{LR}=0.001", "stop.env_frames=1000", seed=seed,
               scores={500: 2, 1180: 3}, frames=1180)  # fmt: skip
    winner = tmp_path / "runs" / "b-s2"
    (winner / "experiment.yaml").rename(winner / "experiment.1.yaml")
    longer = load_experiment(winner / "experiment.1.yaml", ["stop.env_frames=2000"])
    (winner / "experiment.yaml").write_text(dump_experiment(longer))
    summary = json.loads((winner / "summary.json").read_text())
    summary |= {"env_frames": 2050, "stop_reason": "stop.env_frames: 2050 of 2000"}
    (winner / "summary.json").write_text(json.dumps(summary))
    file = winner / "evaluations.csv"
    last = file.read_text().splitlines()[-1]
    file.write_text(file.read_text() + last.replace("1180", "2050").replace(",3", ",9") + "\n")
    found = compared(capsys, tmp_path, "--by", LR)
    assert found["horizon"] == 1000
    assert [group["finals"] for group in found["groups"]] == [
        {"1": 3, "2": 3, "3": 3}, {"1": 2, "2": 2, "3": 2},
    ]  # fmt: skip
    assert found["groups"][0]["best_checkpoint"]["mean"] == 3, "9 was reached later"


def test_finals_need_a_common_horizon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (1, 2, 3):
        record(tmp_path, f"a-s{seed}", f"{LR}=1e-3", seed=seed, scores={1000: 1, 2000: 9})
        record(tmp_path, f"b-s{seed}", f"{LR}=1e-2", seed=seed, scores={1005: 5})
    found = compared(capsys, tmp_path)
    assert found["horizon"] == 1005
    assert found["groups"][0]["label"] == "lr=0.01", "at 1,005 frames, not at their own ends"
    record(tmp_path, "b-s4", f"{LR}=1e-2", seed=4, scores={700: 5})
    (note,) = compared(capsys, tmp_path)["notes"]
    assert "a-s1 has no evaluation at 700 frames" in note


def test_a_late_fall_shows_in_the_final_and_the_best_stands_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2, 3):
        scores = {200: 10.0, 600: 90 + seed, 1000: 40 + seed, 1500: 999}
        record(tmp_path, f"a-s{seed}", f"{LR}=1e-3", seed=seed, scores=scores)
        record(tmp_path, f"b-s{seed}", f"{LR}=1e-2", seed=seed, scores={400: 50, 1010: 60 + seed})
    found = compared(capsys, tmp_path)
    other, falls = found["groups"]
    assert (falls["final"]["mean"], falls["best_checkpoint"]["mean"]) == (42, 92)
    assert other["final"]["mean"] == 62
    assert found["areas_from"] == 400
    # Seed 2: from (10 + 92) / 2 at 400 frames over 92 at 600 to 42 at 1,000, a line to 999 at
    # 1,500: 42 + 957 / 50 at 1,010.
    until = [(51 + 92) / 2 * 200, (92 + 42) / 2 * 400, (42 + 42 + 957 / 50) / 2 * 10]
    assert falls["areas"]["2"] == pytest.approx(sum(until) / 610)
    assert other["area"]["mean"] == pytest.approx((50 + 62) / 2)
    text = page(capsys, tmp_path)
    assert "best checkpoint" in text.split("\n\n")[1]
    assert "final: mean return of the evaluation at 1,010 frames" in text
    assert max(map(len, text.split("\n\n")[2].splitlines())) <= 120


def test_bests_of_unlike_searches_are_compared_at_as_many_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finals = np.random.default_rng(0).normal(100, 10, 24)
    for draw in range(24):
        for size in (8, 16) if draw < 3 else (8,):
            name, rate = f"bs{size}-{draw}", f"{LR}={1e-4 * (draw + 1):.4f}"
            record(tmp_path, name, rate, f"{SIZE}={size}", scores={1000: float(finals[draw])})
    found = compared(capsys, tmp_path, "--by", SIZE)
    by_size = {row["values"][SIZE]: row for row in found["groups"]}
    three = [max(some) for some in itertools.combinations(finals, 3)]
    assert by_size[8]["best_of"]["score"] == pytest.approx(np.mean(three))
    assert by_size[16]["best_of"] == {"draws": 3, "of": 3, "score": max(finals[:3])}
    assert len(by_size[8]["finals"]) == 24, "each draw of one seed counts"
    assert by_size[8]["final"]["mean"] == by_size[16]["final"]["mean"], "over the common draws"
    assert by_size[8]["env_frames"] == 24_000, "of the whole search"
    assert any("compared at 3 draws of each" in note for note in found["notes"])
    picture = tmp_path / "sorted.svg"
    compared(capsys, tmp_path, "--by", SIZE, "--sorted-finals", str(picture))
    assert "<svg" in picture.read_text()
    assert "best of 3" in page(capsys, tmp_path, "--by", SIZE).split("\n\n")[1]
    record(tmp_path, "bs16-3", f"{LR}=0.5", f"{SIZE}=16", code=ExitCode.DIVERGED)
    for row in compared(capsys, tmp_path, "--by", SIZE)["groups"]:
        if row["values"] == {SIZE: 16}:
            assert sorted(row["draws"]) == sorted([*finals[:3], min(finals[:3])])


def test_what_differs_besides_settings_separates_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2, 3):
        record(tmp_path, f"old-s{seed}", seed=seed, scores={1000: 1})
        record(tmp_path, f"new-s{seed}", seed=seed, scores={1000: 2}, commit="def")
        record(tmp_path, f"more-s{seed}", seed=seed, scores={1000: 2}, episodes=50)
    found = compared(capsys, tmp_path)
    assert len(found["groups"]) == 3
    assert found["differs"] == {
        "settings": {},
        "setup": {
            "commit": ["abc", "def"],
            "evaluated by": ["20 episodes, sample", "50 episodes, sample"],
        },
    }
    record(tmp_path, "late", f"{LR}=0.5", seed=1)
    assert len(compared(capsys, tmp_path)["groups"]) == 4, "no evaluation is no other protocol"
    pooled = compared(capsys, tmp_path, "--by", "learning_rate")
    assert len(pooled["groups"]) == 2
    assert pooled["notes"][0] == "pooled, though they differ: commit, evaluated by"


def test_groups_of_a_key_pool_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, (rate, size) in enumerate([(1e-3, 8), (1e-3, 16), (1e-2, 8), (1e-2, 16)] * 2):
        record(tmp_path, f"r{seed}", f"{LR}={rate}", f"{SIZE}={size}", seed=seed,
               scores={1000: 100 * rate + seed})  # fmt: skip
    found = compared(capsys, tmp_path, "--by", "learning_rate")
    assert [row["values"] for row in found["groups"]] == [{LR: 0.01}, {LR: 0.001}]
    assert found["notes"][0] == f"pooled, though they differ: {SIZE}"
    for wrong in ("unroll_length", "nonsense", "lerning_rate", "seed"):
        assert main(["compare", str(tmp_path), "--by", wrong]) == ExitCode.USAGE
    assert main(["compare", str(tmp_path), "--at", "99"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "has no evaluation at 99 frames (nearest: 1,000)" in said
    assert "did you mean learner.optimizer.learning_rate?" in said
    assert "a seed is the unit" in said


def test_returns_of_two_environments_are_not_ranked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2, 3):
        record(tmp_path, f"a{seed}", seed=seed, scores={1000: 400})
        record(tmp_path, f"b{seed}", "environment.id=Acrobot-v1", seed=seed, scores={1000: -90})
    found = compared(capsys, tmp_path)
    assert found["sentence"].startswith("Returns of different environments do not compare")
    assert all("worse_than_best" not in group for group in found["groups"])


def record_games(folder: Path, games: int = 3, seeds: int = 4) -> dict[float, list[list[float]]]:
    """Leave runs of games at two learning rates; return human-normalised scores [games, seeds]."""
    draws = np.random.default_rng(1)
    found = {}
    for rate, mean in ((1e-3, 1.0), (1e-2, 1.2)):
        scores = mean + draws.normal(0, 0.1, (games, seeds)) + np.arange(games)[:, None]
        found[rate] = scores.tolist()
        for game, seed in itertools.product(range(games), range(seeds)):
            name = ("Pong", "Boxing", "Breakout")[game]
            record(folder, f"{name}-{rate}-s{seed}", f"environment.id=atari:{name}",
                   f"{LR}={rate}", seed=seed, scores={1000: 1000.0 * game + seed},
                   human=float(scores[game, seed]))  # fmt: skip
    return found


def test_games_are_strata_of_human_normalised_scores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = record_games(tmp_path)
    found = compared(capsys, tmp_path)
    assert [row["values"] for row in found["groups"]] == [{LR: 0.01}, {LR: 0.001}]
    for row in found["groups"]:
        games = np.array(scores[row["values"][LR]])
        assert row["final"]["scores"] == pytest.approx(games.mean(axis=0).tolist())
        assert row["final"]["mean"] == pytest.approx(games.mean())
        assert row["final"]["median"] == pytest.approx(np.median(games.mean(axis=1)))
        assert row["final"]["iqm"] == pytest.approx(np.sort(games.ravel())[3:9].mean())
        half = 3.182446305284263 * games.mean(axis=0).std(ddof=1) / 2  # t of three degrees
        assert np.diff(row["final"]["interval"]).item() == pytest.approx(2 * half)
    one, other = (np.array(scores[rate]) for rate in (1e-2, 1e-3))
    beats = [(a[:, None] > b[None, :]).mean() for a, b in zip(one, other, strict=True)]
    beside = found["groups"][1]["worse_than_best"]
    assert beside["probability"] == pytest.approx(np.mean(beats))
    assert "has the best human-normalised score, 2.2" in found["sentence"]
    shutil.rmtree(tmp_path / "runs" / "Boxing-0.01-s2")
    shutil.rmtree(tmp_path / "runs" / "Pong-0.001-s0")
    less = compared(capsys, tmp_path)
    assert "final: over the seeds that all groups have with every game: 1, 3" in less["notes"]
    assert len(less["groups"][0]["final"]["scores"]) == 2
    by_game = compared(capsys, tmp_path, "--by", "environment.id")
    assert [row["label"] for row in by_game["groups"]] == [
        f"env='atari:{name}'" for name in ("Breakout", "Boxing", "Pong")
    ]


def test_one_game_has_its_human_normalised_score_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, human in ((1, 0.5), (2, 1.0), (3, 1.5)):
        scores = {1000.0: 9.0 * seed}
        record(tmp_path, f"s{seed}", "environment.id=atari:Pong", seed=seed, scores=scores,
               human=human)  # fmt: skip
    found = compared(capsys, tmp_path)
    assert found["groups"][0]["final"]["mean"] == 18
    assert found["groups"][0]["human_normalised"]["mean"] == 1
    assert "100 %" in page(capsys, tmp_path)


def test_time_and_dollars_to_a_score_are_those_of_the_evaluation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, at in ((1, 200), (2, 500), (3, 800), (4, None)):
        curve = {200: 0.0, 500: 0.0, 800: 0.0, 1000: 0.0} | ({at: 9.0} if at else {})
        record(tmp_path, f"s{seed}", seed=seed, scores=curve)
    times = compared(capsys, tmp_path, "--score", "9")["groups"][0]["to_score"]
    assert (times["reached"], times["median"]) == (3, 500)
    assert times["median_seconds"] == pytest.approx(30)
    assert times["median_dollars"] == pytest.approx(0.005)
    assert "time to 9" in page(capsys, tmp_path, "--score", "9")
    nobody = compared(capsys, tmp_path, "--score", "10")
    assert nobody["sentence"] == "No run has reached a mean return of 10."
    never = nobody["groups"][0]["to_score"]
    assert [never[f"median{axis}"] for axis in ("", "_seconds", "_dollars")] == [None] * 3


def test_the_end_of_an_update_makes_no_difference_in_frames_to_a_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Evaluations are due each 400 frames and at the end; updates of one setting are longer."""
    for seed in range(1, 6):
        for rate, behind in ((1e-3, 0), (1e-2, 9)):
            record(tmp_path, f"lr-{rate}-s{seed}", f"{LR}={rate}", "evaluation.every_frames=400",
                   "stop.env_frames=1000", seed=seed, frames=1000 + behind,
                   scores={400 + behind: 1, 800 + behind: 2, 1000 + behind: 3})  # fmt: skip
    for score, due in ((2, 800), (3, 1000)):
        found = compared(capsys, tmp_path, "--score", str(score))
        assert [row["to_score"]["median"] for row in found["groups"]] == [due, due]
        assert found["groups"][1]["worse_than_best"]["p"] == 1
        assert not any("evaluated once" in note for note in found["notes"])
    for file in tmp_path.glob("runs/*/evaluations.csv"):
        head, *_, last = file.read_text().splitlines()
        file.write_text(f"{head}\n{last}\n")
    assert any("evaluated once" in n for n in compared(capsys, tmp_path, "--score", "3")["notes"])


def test_the_number_of_episodes_changes_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for episodes in (20, 2000):
        folder = tmp_path / str(episodes)
        for seed in range(1, 6):
            record(folder, f"s{seed}", f"evaluation.episodes={episodes}", seed=seed,
                   scores={1000: seed}, episodes=episodes)  # fmt: skip
        found.append(compared(capsys, folder)["groups"][0]["final"]["interval"])
    assert found[0] == found[1]


def test_the_csv_has_a_row_for_each_run_with_its_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_rates(tmp_path, worse=5)
    compared(capsys, tmp_path, "--csv", str(tmp_path / "all.csv"))
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert {float(row[LR]) for row in rows} == {1e-3, 1e-2}
    assert {row["state"] for row in rows} == {"finished"}


def test_sorted_finals_are_drawn_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, picture = tmp_path / "set", tmp_path / "sorted.png"
    for seed in (1, 2, 3):
        record(folder, f"a{seed}", seed=seed, scores={1000: seed})
    assert main(["compare", str(folder), "--sorted-finals", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    for wrong, code in (("sorted.txt", ExitCode.USAGE), ("no/such.png", ExitCode.OUTPUT)):
        assert main(["compare", str(folder), "--sorted-finals", str(tmp_path / wrong)]) == code
    record(folder, "a4", seed=4)
    capsys.readouterr()
    assert main(["compare", str(folder), "--sorted-finals", str(picture)]) == ExitCode.USAGE
    assert "a4 was never evaluated" in capsys.readouterr().err


def test_the_csv_has_the_columns_of_the_frame_with_their_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lists, flags, null and texts beside numbers keep their values; what is missing is empty."""
    sizes = "environment.kwargs={a: [1, 2], b: 1.5e-3}", "environment.kwargs={a: auto, b: true}"
    for at, (kwargs, goal, scores) in enumerate(
        ((sizes[0], "null", {1000: 1.5}), (sizes[1], "475", None), ("name=x", "475", {1000: 2}))
    ):
        record(tmp_path, f"r{at}", kwargs, f"stop.mean_return={goal}", scores=scores)
    compared(capsys, tmp_path, "--csv", str(tmp_path / "all.csv"))
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = seedbed.load_runs(tmp_path).columns()
    assert list(rows[0]) == ["group", *columns]
    kwargs = [json.loads(row["environment.kwargs"]) for row in rows]
    assert kwargs == [{"a": [1, 2], "b": 1.5e-3}, {"a": "auto", "b": True}, {}]
    assert kwargs == columns["environment.kwargs"].tolist()
    assert [row["stop.mean_return"] for row in rows] == ["null", "475.0", "475.0"]
    assert columns["stop.mean_return"].tolist() == [None, 475.0, 475.0]
    assert [row["evaluation_mean"] for row in rows] == ["1.5", "", "2.0"]
    assert np.isnan(columns["evaluation_mean"][1])
    pytest.importorskip("pandas")
    frame = seedbed.load_runs(tmp_path).frame()
    assert frame["environment.kwargs"].tolist() == kwargs
    assert frame["evaluation_mean"].mean() == 1.75
    assert frame.loc[0, "stop.mean_return"] is None


def test_an_evaluation_that_was_cut_or_is_not_a_number_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_rates(tmp_path, worse=5)
    file = tmp_path / "runs" / "lr-0.001-s1" / "evaluations.csv"
    whole = compared(capsys, tmp_path)["groups"]
    head, last = file.read_text().splitlines()
    for row in ("1000,1000,,20,sample,7", "1000,1000,,20,sam1000,-9,,20,sample,1,,,y,,,x",
                "1000,1000,,20,sample,nan,,,,,,,x"):  # fmt: skip
        file.write_text(f"{head}\n{row}\n{last}\n")
        assert compared(capsys, tmp_path)["groups"] == whole


def test_a_winner_that_is_trained_longer_keeps_its_frames_to_a_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rate, behind in ((1e-3, 80), (1e-2, 3)):
        run = record(tmp_path, f"lr-{rate}", f"{LR}={rate}", "stop.env_frames=1000",
                     frames=1000 + behind, scores={1000 + behind: 50})  # fmt: skip
        if behind == 80:
            stored = run / "experiment.yaml"
            stored.rename(run / "experiment.1.yaml")
            longer = load_experiment("cartpole-vtrace", [f"{LR}={rate}", "stop.env_frames=2000"])
            stored.write_text(dump_experiment(longer))
            row = {"env_frames": 2010, "updates": 2010, "episodes": 20, "policy": "sample",
                   "mean": 60, "checkpoint": "c", "training_seconds": 9,
                   "human_normalised": None}  # fmt: skip
            append_evaluation(run, row)
    found = compared(capsys, tmp_path, "--score", "40")
    assert [row["to_score"]["median"] for row in found["groups"]] == [1000, 1000]


def test_a_seed_that_a_group_has_twice_counts_twice_in_any_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = {"a": {1e-2: (50, 60), 3e-3: (62, 62.4)}, "b": {1e-2: (70, 70)}}
    for folder, of in scores.items():
        for rate, means in of.items():
            for seed, mean in enumerate(means, 1):
                record(tmp_path / folder, f"lr-{rate}-s{seed}", f"{LR}={rate}", seed=seed,
                       scores={1000: mean})  # fmt: skip
    for order in (("a", "b"), ("b", "a")):
        first, second = (tmp_path / name for name in order)
        best, other = compared(capsys, first, str(second))["groups"]
        assert (best["label"], best["final"]["mean"]) == ("lr=0.01", 62.5)
        assert (other["label"], other["final"]["mean"]) == ("lr=0.003", 62.2)


def test_a_lost_seed_of_one_setting_takes_none_from_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_rates(tmp_path, worse=50, seeds=3)
    for seed, way in ((1, {"code": ExitCode.DIVERGED}), (2, {}), (3, {})):
        one: dict[str, Any] = {"scores": {1000: 20.0}, **way}
        record(tmp_path, f"lr-1-s{seed}", f"{LR}=1.0", seed=seed, **one)
    best, other, lost = compared(capsys, tmp_path)["groups"]
    assert (len(best["final"]["scores"]), len(other["final"]["scores"])) == (3, 3)
    assert best["final"]["interval"] is not None
    assert other["worse_than_best"]["differs"]
    assert (lost["label"], lost["lost"], len(lost["final"]["scores"])) == ("lr=1.0", 1, 2)


def test_settings_without_a_common_seed_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, rate in ((1, 1e-3), (2, 1e-2)):
        record(tmp_path, f"lr-{rate}", f"{LR}={rate}", seed=seed, scores={1000: 1.0})
    notes = compared(capsys, tmp_path)["notes"]
    assert "final: no seed is in all groups: each has its own" in notes


def test_a_set_that_nobody_began_is_named_by_a_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", "cartpole-vtrace", "--seeds", "2", "--out", str(tmp_path / "set"), "--print"]
    assert main(words) == 0
    assert main(["compare", str(tmp_path / "set")]) == ExitCode.RUN_DIRECTORY
    assert "has begun, of 2" in capsys.readouterr().err


def test_status_and_comparison_tell_the_same_states(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "set"
    words = ["sweep", "cartpole-vtrace", "--seeds", "6", "--out", str(folder), "--print"]
    assert main(words) == 0
    members = read_members(folder)
    ways: list[dict[str, Any]] = [
        {"scores": {1000: 5}}, {"code": ExitCode.DIVERGED}, {"code": ExitCode.INTERNAL},
        {"reason": ""}, {"reason": ""},
    ]  # fmt: skip
    for member, way in zip(members, ways, strict=False):
        record(folder, member.name, seed=member.experiment.seed, **way)
    mark_stopped(members[4])
    states = {r.name: r.state for r in seedbed.load_runs(folder).records}
    wanted = ["finished", "diverged", "failed", "unfinished", "stopped"]
    assert [states[member.name] for member in members[:5]] == wanted
    capsys.readouterr()
    assert main(["status", str(folder), "--json"]) == 0
    told = [one["state"] for one in json.loads(capsys.readouterr().out)["runs"]]
    assert told[0] == "finished"
    assert told[1] == "FAILED, exit code 42 (DIVERGED)"
    assert told[2] == "FAILED, exit code 1 (INTERNAL)"
    assert told[4:] == ["stopped by a person", "to begin"]
    assert main([*words, "--set", "stop.env_frames=100000000"]) == 0
    capsys.readouterr()
    assert main(["status", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["state"] == "to go on"
    head, row = page(capsys, folder).split("\n\n")[1].splitlines()
    assert head.split()[:7] == ["setting", "seeds", "failed", "diverged", "stopped", "to", "go"]
    assert row.split()[2:9] == ["1", "of", "5", "1", "1", "1", "1"], "one setting, 1 of 5 finished"


def test_runs_that_have_not_begun_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "lab"
    sweep = read_sweep("cartpole-vtrace", [f"{LR}=1e-3,1e-2"], {"seeds": 3, "name": "lab"})
    write_set(folder, resolve(sweep, "a sweep"))
    first, *_ = read_members(folder)
    record(folder, first.name, *(f"{key}={value}" for key, value in first.values.items()))
    for named in (folder, tmp_path / "." / "lab"):
        found = compared(capsys, named)
        assert found["runs"] == 1
        assert found["sentence"].endswith(" Not begun: 5 runs.")
    one = compared(capsys, folder / "runs" / first.name)
    assert "Not begun" not in one["sentence"]


def test_unfinished_runs_are_counted_and_claim_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, "a", reason="")
    record(tmp_path, "b", f"{LR}=1e-1", reason="")
    found = compared(capsys, tmp_path)
    assert found["sentence"] == "Nothing can be compared yet. Of 2 runs 2 are not at their ends."
    assert {str(row["states"]) for row in found["groups"]} == {"{'unfinished': 1}"}


def test_1000_runs_are_compared_in_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record(tmp_path, "r0", f"{LR}=0.125", seed=7, scores={1000: 1})
    text = (first / "experiment.yaml").read_text()
    for number in range(1, 1000):
        run = shutil.copytree(first, first.with_name(f"r{number}"))
        rate = f"learning_rate: {1e-4 * (1 + number % 100):.4f}"
        own = text.replace("learning_rate: 0.125", rate)
        (run / "experiment.yaml").write_text(own.replace("seed: 7", f"seed: {number // 100}"))
    begun = time.perf_counter()
    assert len(compared(capsys, tmp_path)["groups"]) == 101
    assert time.perf_counter() - begun < 60  # 5 s here; minutes are a defect


def test_a_notebook_has_the_runs_as_arrays(tmp_path: Path) -> None:
    two_rates(tmp_path, worse=5)
    runs = seedbed.load_runs(tmp_path)
    columns = runs.columns()
    assert len(runs) == 10
    twice = seedbed.load_runs(tmp_path, tmp_path / "runs", tmp_path / "runs/lr-0.001-s1")
    assert len(twice) == 10, "a run that is named twice is one"
    assert set(columns[LR].tolist()) == {1e-3, 1e-2}
    assert columns["seed"].dtype.kind == "i"
    assert runs.best(by="learning_rate")["values"] == {LR: 1e-3}
    record(tmp_path / "other", "r0", scores={}, reason="")
    with pytest.raises(SeedbedError, match="no setting is the best: no run is finished"):
        seedbed.load_runs(tmp_path / "other").best()
    shutil.rmtree(tmp_path / "other")
    assert runs.compare()["groups"][0]["label"] == "lr=0.001"
    record(tmp_path / "other", "r1", f"{LR}=1e-3", seed=1, scores={1000: 1})
    notes = seedbed.load_runs(tmp_path, tmp_path / "other").compare()["notes"]
    assert any(one.startswith("1 run with the settings and the seed of another") for one in notes)
    pandas = pytest.importorskip("pandas")
    assert isinstance(runs.frame(), pandas.DataFrame)
    assert runs.frame()[LR].dtype == float


def test_what_the_set_has_chosen_is_confirmed_on_fresh_seeds_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "set-of-three"
    words = ["sweep", "cartpole-vtrace", "--set", f"{LR}=1e-3,1e-2,1e-1", "--seeds", "3"]
    assert main([*words, "--out", str(folder), "--print"]) == 0
    assert main(["sweep", str(folder), "--confirm", "5", "--print"]) == ExitCode.RUN_DIRECTORY
    scores = {1e-3: 100, 1e-2: 200, 1e-1: 10}
    for member in read_members(folder):
        rate = member.values[LR]
        record(folder, member.name, f"{LR}={rate}", seed=member.experiment.seed,
               scores={1000: scores[rate] + member.experiment.seed})  # fmt: skip
    assert "Not confirmed: it is the best of 3" in compared(capsys, folder)["sentence"]
    capsys.readouterr()
    assert main(["sweep", str(folder), "--confirm", "5", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert told.out.count("s100000") == 10
    assert "confirm: 10 runs on fresh seeds" in told.err
    assert "with them, to go: 10 runs" in told.err
    assert len(read_members(folder)) == 9
    assert main(["sweep", str(folder), "--confirm", "5", "--print"]) == 0
    fresh = read_members(folder)[9:]
    assert [member.values[LR] for member in fresh] == [1e-2, 1e-3] * 5
    assert len({member.experiment.seed for member in fresh} - {1, 2, 3}) == 5
    assert main(["sweep", str(folder), "--confirm", "5", "--print"]) == 0
    assert len(read_members(folder)) == 19, "the same command adds nothing"
    for member in fresh:  # the lucky one is the worse one
        rate, seed = member.values[LR], member.experiment.seed
        mean = 90 + seed % 5 - 50 * (rate == 1e-2)
        record(folder, member.name, f"{LR}={rate}", seed=seed, scores={1000: mean})
    found = compared(capsys, folder)
    assert found["groups"][0]["label"] == "lr=0.01"
    assert len(found["groups"][0]["final"]["scores"]) == 3, "the search has its own seeds"
    assert found["confirmation"]["groups"][0]["label"] == "lr=0.001"
    assert found["sentence"].startswith("On seeds that did not choose it: lr=0.001 has the best")
    assert "on fresh seeds:" in page(capsys, folder)
