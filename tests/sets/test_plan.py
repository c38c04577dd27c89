"""What a set still takes, told before it starts."""

from __future__ import annotations

import json
from pathlib import Path

from seedbed.config.load import dump_experiment
from seedbed.sets.budget import Spending
from seedbed.sets.folder import read_members, write_set
from seedbed.sets.plan import to_go
from seedbed.sets.resolve import resolve
from seedbed.sets.sweep import Budget, read_sweep


def test_time_and_dollars_are_what_the_runs_of_the_set_have_measured(tmp_path: Path) -> None:
    settings = ["stop.env_frames=1000", "stop.mean_return=400", "evaluation.at_end=false"]
    wanted = resolve(read_sweep("cartpole-vtrace", settings, {"seeds": 3}), "cartpole-vtrace")
    write_set(tmp_path, wanted)
    assert to_go(tmp_path, wanted.runs, 1) == (
        "to go: 3 runs, 3.00K frames; time and dollars are measured by the first one that trains"
    )
    for number, (run, frames) in enumerate(zip(wanted.runs, (600, 400), strict=False)):
        path = tmp_path / "runs" / run.name
        path.mkdir(parents=True)
        counters = {"env_frames": frames, "seconds": 10.0, "dollars": frames / 100}
        (path / "status.json").write_text(json.dumps({"counters": counters}))
        (path / "experiment.yaml").write_text(dump_experiment(run.experiment))
        if number == 0:  # at its score, so that it takes no more frames
            (path / "summary.json").write_text(json.dumps({"updates": 9}))
            start = {"time": 100.0}
            (path / "history.json").write_text(json.dumps({"starts": [start], "packages": {}}))
            status = {"counters": counters, "time": 100.0 + 10.0 + 7.0}
            (path / "status.json").write_text(json.dumps(status))
    # 1,000 frames in 20 s for $10; 600 and 1,000 are to go, two runs at once, each with 7 s beside.
    assert to_go(tmp_path, wanted.runs, 2) == (
        "to go: 2 runs, 1.60K frames, 23 s and $16.00 at 50 frames/s a run and 7 s beside"
    )
    # Twice the frames: the first one is not finished any more.
    more = resolve(read_sweep("cartpole-vtrace", ["stop.env_frames=2000", *settings[1:]],
                              {"seeds": 3}), "cartpole-vtrace")  # fmt: skip
    assert to_go(tmp_path, more.runs, 1) == (
        "to go: 3 runs, 5.00K frames, 2 min and $50.00 at 50 frames/s a run and 7 s beside"
    )
    endless = ["stop.env_frames=0", "stop.seconds=5", *settings[1:]]
    sweep = resolve(read_sweep("cartpole-vtrace", endless), "cartpole-vtrace")
    assert "not every run has stop.env_frames" in to_go(tmp_path, sweep.runs, 1)


def test_a_bound_counts_all_learners_of_a_run(tmp_path: Path) -> None:
    settings = ["stop.env_frames=1000", "gossip.replicas=2"]
    wanted = resolve(read_sweep("cartpole-vtrace", settings, {"seeds": 2}), "cartpole-vtrace")
    write_set(tmp_path, wanted)
    first, second = read_members(tmp_path)
    for rank, seconds in enumerate((10.0, 12.0)):
        path = first.run / f"learner-{rank}"
        path.mkdir(parents=True)
        counters = {"env_frames": 300, "seconds": seconds, "dollars": 2.0}
        (path / "status.json").write_text(json.dumps({"counters": counters}))
    assert (first.frames, first.totals().seconds, first.has_begun, second.has_begun) == (
        600,
        12,
        True,
        False,
    )
    assert not first.has_checkpoint, "so that it begins again"
    spending = Spending(tmp_path, Budget(dollars=7))
    spent = spending.spent([first, second], [first])
    assert (spent.dollars, spent.frames) == (4, 600)
    assert "may take $6.67" in spending.refusal(second, [first], spent)
    assert "1.40K frames, 28 s and $9.33" in to_go(tmp_path, wanted.runs, 1)


def test_runs_that_end_early_at_a_score_reserve_less_for_the_others(tmp_path: Path) -> None:
    settings = ["stop.env_frames=1000", "stop.mean_return=400", "evaluation.at_end=false"]
    wanted = resolve(read_sweep("cartpole-vtrace", settings, {"seeds": 6}), "cartpole-vtrace")
    write_set(tmp_path, wanted)
    members = read_members(tmp_path)

    def has(number: int, frames: int, is_finished: bool = True) -> None:
        path, run = members[number].run, wanted.runs[number]
        path.mkdir(parents=True, exist_ok=True)
        counters = {"env_frames": frames, "seconds": frames / 100, "dollars": frames / 100}
        (path / "status.json").write_text(json.dumps({"counters": counters}))
        (path / "experiment.yaml").write_text(dump_experiment(run.experiment))
        if is_finished:
            (path / "summary.json").write_text(json.dumps({"updates": 9}))

    def refusal(*running: int) -> str:
        spending, going = Spending(tmp_path, Budget(dollars=5.5)), [members[n] for n in running]
        return spending.refusal(members[5], going, spending.spent(members, going))

    has(0, 100)
    has(1, 60)
    assert "may take $10.00" in refusal(), "two may be lucky"
    has(2, 80)
    assert refusal() == "", "half as much again as the longest: $1.50"
    assert "to go: 3 runs, 450 frames" in to_go(tmp_path, wanted.runs, 1)
    has(3, 200, is_finished=False)
    assert "may take $3.00, and of $5.50 $4.40 is spent and $1.00 reserved" in refusal(3), (
        "one that trains is the longest already"
    )
    frames = Spending(tmp_path, Budget(frames=600))
    assert frames.refusal(members[5], [], frames.spent(members, [])) == ""
    assert "to go: 3 runs, 700 frames" in to_go(tmp_path, wanted.runs, 1), "100, 300 and 300"
    # Of another stop they tell nothing.
    more = resolve(read_sweep("cartpole-vtrace", ["stop.env_frames=2000", *settings[1:]],
                              {"seeds": 6}), "cartpole-vtrace")  # fmt: skip
    assert "to go: 6 runs, 11.6K frames" in to_go(tmp_path, more.runs, 1)
