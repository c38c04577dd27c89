"""Several learners as one run: what they have done together, their checkpoints, their line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.checkpoints.consensus import best, consensus
from seedbed.checkpoints.format import Checkpoint
from seedbed.checkpoints.store import CheckpointStore
from seedbed.config.run import Stop
from seedbed.gossip.membership import Membership
from seedbed.launch.learners_view import learners_line, run_summary
from seedbed.runs.layout import learner_directories, learner_directory
from seedbed.runs.stop import met_condition
from seedbed.runs.stored import read_checkpoint
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ArraySpec, EnvironmentSpec
from seedbed.telemetry.counters import Counters
from seedbed.v1.gossip_pb2 import Member


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def checkpoint(value: float, rank: int = 0, **meta: Any) -> Checkpoint:
    arrays = {
        "model/a": np.full((2, 2), value, np.float32),
        "optimizer/v": np.full(2, value, np.float32),
    }
    counters = {"updates": 10 + rank, "env_frames": 100, "seconds": 5.0 + rank, "dollars": 0.5}
    spec = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1).to_json()
    always = {"experiment": "name: x", "spec": spec, "counters": counters}
    return Checkpoint(f"learner-{rank}", arrays, {**always, **meta})


# --- together ----------------------------------------------------------------------------------


def test_frames_and_dollars_are_added_up() -> None:
    members = Membership(0, 3, 10.0)
    members.update(1, Member(iteration=1, env_frames=40, dollars=2.0, updates=7, seconds=9.0))
    members.update(2, Member(iteration=1, env_frames=2, dollars=0.5, updates=8, seconds=1.0))
    own = Counters(env_frames=100, dollars=1.0, updates=3, seconds=4.0)
    total = members.total(own)
    assert (total.env_frames, total.dollars) == (142, 3.5)
    assert (total.updates, total.seconds) == (3, 4.0), "its own"
    assert own.env_frames == 100, "and nothing has changed"


def test_one_bill_for_all_is_paid_once() -> None:
    members = Membership(0, 2, 10.0, whole_bill=True)
    members.update(1, Member(dollars=2.0))
    assert members.total(Counters(dollars=1.5)).dollars == 2.0


def test_stop_conditions_count_all_learners() -> None:
    members = Membership(0, 2, 10.0)
    stop = Stop(env_frames=100)
    own = Counters(env_frames=60)
    assert met_condition(stop, members.total(own), lambda _: None) is None
    members.update(1, Member(env_frames=40))
    reached = met_condition(stop, members.total(own), lambda _: None)
    assert reached is not None
    assert reached.text == "stop.env_frames: 100 of 100"


def test_mean_return_is_of_everybodys_share_of_the_episodes() -> None:
    members = Membership(0, 2, 10.0)
    assert members.mean_return(lambda n: 3.0, 10) is None, "five episodes are not ten"
    members.update(1, Member(return_sum=40.0, return_count=5))
    asked: list[int] = []

    def own(episodes: int) -> float:
        asked.append(episodes)
        return 2.0

    assert members.mean_return(own, 10) == pytest.approx((5 * 2.0 + 40.0) / 10)
    assert asked == [5]
    assert members.mean_return(lambda n: None, 10) is None


def test_the_dead_have_no_share_of_the_episodes() -> None:
    clock = Clock()
    members = Membership(0, 4, 10.0, now=clock)
    assert members.share(10) == 3
    clock.now = 11.0
    members.update(2, Member(iteration=1))
    assert members.share(10) == 5


def test_what_a_peer_has_met_ends_all() -> None:
    members = Membership(1, 3, 10.0)
    assert members.peers_over() == {}
    members.update(1, Member(over="stop.updates: its own does not count here"))
    assert members.peers_over() == {}
    members.update(2, Member(over="stop.dollars: 3 of 3"))
    assert members.peers_over() == {"dollars": 2}
    members.update(0, Member(over="learner 2: stop.seconds: 3 of 3"))
    assert members.peers_over() == {"dollars": 2, "seconds": 0}


def test_alive_is_who_makes_progress() -> None:
    clock = Clock()
    members = Membership(0, 3, 10.0, now=clock)
    clock.now = 9.0
    assert members.alive() == {0, 1, 2}, "they have as long to come"
    members.update(1, Member(iteration=1))
    clock.now = 12.0
    assert members.alive() == {0, 1}
    members.update(1, Member(iteration=1, env_frames=5))  # beats alone are no progress
    members.update(2, Member(iteration=1))
    for rank in (1, 2):
        members.on_proof(rank)
    clock.now = 20.0
    assert members.alive() == {0, 2}
    members.update(1, Member(iteration=2))
    assert members.alive() == {0, 1, 2}
    members.update(2, Member(iteration=0))  # it goes on from an older checkpoint
    clock.now = 29.0
    assert members.alive() == {0, 1, 2}
    members.on_parameters(1, 3)
    members.on_parameters(2, 0)
    clock.now = 38.0
    assert members.alive() == {0, 1}, "one has sent a newer message, the other an old one"
    assert [members.highest_iteration(rank) for rank in range(3)] == [0, 3, 1], (
        "whatever was reported later"
    )


def test_what_others_had_done_survives_a_restart() -> None:
    before = Membership(0, 2, 10.0)
    before.update(1, Member(iteration=4, env_frames=40, over="stop.env_frames: 40 of 40"))
    before.on_parameters(1, 4)
    before.on_proof(1)
    after = Membership(0, 2, 10.0)
    after.restore(before.to_json())
    assert after.total(Counters(env_frames=1)).env_frames == 41
    assert after.peers_over() == {}, "whether it is over is looked at anew"
    assert after.peers_heard() == {}, "and no peer has reported yet"
    assert after.highest_iteration(1) == 4


# --- checkpoints -------------------------------------------------------------------------------


def test_consensus_is_the_average() -> None:
    made = consensus([checkpoint(1.0), checkpoint(2.0, 1), checkpoint(6.0, 2)], "all")
    np.testing.assert_array_equal(made.arrays["model/a"], np.full((2, 2), 3.0, np.float32))
    assert made.arrays.keys() == {"model/a"}, "an average of optimizers is no optimizer"
    assert made.meta["counters"] == {
        "updates": 12, "env_frames": 300, "seconds": 7.0, "dollars": 1.5,
    }  # fmt: skip


def test_learners_of_other_networks_have_no_average() -> None:
    other = checkpoint(1.0, 1)
    other.arrays["model/a"] = np.zeros((3, 2), np.float32)
    with pytest.raises(SeedbedError, match=r"\[2, 2\] in learner-0 and of shape \[3, 2\]") as error:
        consensus([checkpoint(1.0), other], "all")
    assert error.value.code is ExitCode.CHECKPOINT_READ


def test_the_best_has_the_best_evaluation_or_return() -> None:
    returns = [checkpoint(0.0, r, telemetry={"recent_returns": [r, 3 - r]}) for r in range(2)]
    returns.append(checkpoint(0.0, 2, telemetry={"recent_returns": [9.0]}))
    assert best(returns).path == "learner-2"
    some = [*returns, checkpoint(0.0, 3, best_evaluation=500.0)]
    assert best(some).path == "learner-2", "one evaluation does not compare the others"
    long = checkpoint(0.0, 0, telemetry={"recent_returns": [0.0] * 900 + [8.0] * 100})
    assert best([long, checkpoint(0.0, 1, telemetry={"recent_returns": [7.0]})]) is long
    evaluated = [checkpoint(0.0, r, best_evaluation=-5.0 + r) for r in range(3)]
    assert best(evaluated).path == "learner-2"


def test_they_are_read_by_the_runs_name(tmp_path: Path) -> None:
    for rank, value in enumerate((1.0, 3.0)):
        store = CheckpointStore(str(tmp_path / f"learner-{rank}" / "checkpoints"))
        made = checkpoint(value, rank)
        meta = {**made.meta, "telemetry": {"recent_returns": [10.0 - rank]}}
        store.save(made.arrays, meta, 10 + rank)
    assert [d.name for d in learner_directories(tmp_path)] == ["learner-0", "learner-1"]
    assert learner_directories(tmp_path / "learner-0") == []
    (tmp_path / "experiment.yaml").write_text("gossip: {replicas: 1}")
    assert [d.name for d in learner_directories(tmp_path)] == ["learner-0"], "one was left behind"
    (tmp_path / "experiment.yaml").write_text("gossip: {replicas: 2, topology: hogwild}")
    assert read_checkpoint(tmp_path).arrays["model/a"][0, 0] == 1.0, "the copy of all, no average"
    (tmp_path / "experiment.yaml").unlink()
    assert read_checkpoint(tmp_path).arrays["model/a"][0, 0] == 2.0
    assert read_checkpoint(tmp_path, "best").arrays["model/a"][0, 0] == 1.0
    assert read_checkpoint(tmp_path / "learner-1").arrays["model/a"][0, 0] == 3.0
    learner_directory(tmp_path, 2).mkdir()  # one that was killed before it had any
    assert read_checkpoint(tmp_path).arrays["model/a"][0, 0] == 2.0
    assert read_checkpoint(tmp_path, "best").arrays["model/a"][0, 0] == 1.0
    learner_directory(tmp_path, 2).rmdir()
    with pytest.raises(SeedbedError, match="has 2 learners: --checkpoint is newest"):
        read_checkpoint(tmp_path, "11")


def test_learner_10_comes_after_learner_9(tmp_path: Path) -> None:
    for rank in range(12):
        learner_directory(tmp_path, rank).mkdir()
    assert learner_directories(tmp_path) == [learner_directory(tmp_path, r) for r in range(12)]


# --- what is shown -----------------------------------------------------------------------------


def status(frames: int, **numbers: Any) -> dict[str, Any]:
    return {
        "numbers": {"env_frames": frames, "env_fps_10s": 10.0, "run_dollars": 0.25, **numbers},
        "eta": {"seconds": frames * 0.06},
        "stop": {"mean_return": None},
        "waiting_for": None,
    }


def test_the_line_is_of_all() -> None:
    one = status(
        1000, mean_return=1.0, mean_return_episodes=3, gossip_mixes=4, gossip_distance_max=0.5
    )
    two = status(
        500, mean_return=5.0, mean_return_episodes=1, gossip_mixes=2, gossip_distance_max=0.25
    )
    line = " | ".join(learners_line([one, two, None], 2))
    assert line.startswith("return 2.00 (last 4) | 2 of 3 learners | 1.50K frames | 20 frames/s")
    assert "| ETA 60 s | 6 mixes, 0.5 apart | now: learner 2: starting | $0.50" in line


def test_the_summary_adds_up_and_has_each_learners_own() -> None:
    def summary(frames: int, mean: float | None, episodes: int) -> dict[str, Any]:
        names = (
            "trained_frames", "inserted_frames", "discarded_frames", "abandoned_episodes",
            "skipped_updates",
        )  # fmt: skip
        return {
            **dict.fromkeys(names, 0), "env_frames": frames, "episodes": episodes, "dollars": 1.0,
            "seconds": 10.0, "updates": 5, "mean_return": mean, "mean_return_episodes": episodes,
            "stop_reason": "stop.env_frames: 3 of 3",
        }  # fmt: skip

    made = run_summary(
        [None, status(1, gossip_mixes=3), None],
        [None, summary(100, 2.0, 3), summary(50, None, 0)],
        None,
        0.25,
    )
    assert (made["env_frames"], made["updates"]) == (150, 10)
    assert made["dollars"] == 2.25, "the last evaluation, too"
    assert made["env_fps"] == 15.0
    assert made["mean_return"] == 2.0
    assert made["learners"][0] is None, "it has ended without a summary"
    assert made["learners"][1]["gossip"] == {"mixes": 3}
    assert len(made["learners"]) == 3
    again = {**summary(0, None, 0), "seconds": 31.0}  # it was started again, and loaded anew
    made = run_summary([None] * 3, [summary(100, None, 0), again, summary(50, None, 0)], None, 0.0)
    assert (made["seconds"], made["env_fps"]) == (10.0, 15.0)
    assert (made["joules"], made["frames_per_kilojoule"]) == (None, None)
    # Both have read the counters of the one machine.
    energy = [
        {**summary(100, None, 0), "joules": 2000.0, "frames_per_kilojoule": 50.0},
        {**summary(50, None, 0), "joules": 1990.0, "frames_per_kilojoule": 50 / 1.99},
    ]
    made = run_summary([None] * 2, energy, None, 0.0)
    assert made["joules"] == 2000.0
    assert made["frames_per_kilojoule"] == pytest.approx(75.0)
