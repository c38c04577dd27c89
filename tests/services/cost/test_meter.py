"""The bill and the end of an experiment. A real API server is in `make e2e`; here is a fake one."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from seedbed.services.cost.learners import read_learner
from seedbed.services.cost.meter import STRAGGLER_TIMEOUT_S, CostMeter, Goal
from seedbed.services.cost.prices import PriceList, Settings
from tests.services.cost.test_usage import container, pod

DOLLAR_AN_HOUR = {"families": {"x": {"cpu": 1.0, "memory_gib": 0.0, "spot": 0.25}}}


class FakeCluster:
    """An API server with one pod of one vCPU."""

    def __init__(self) -> None:
        self.items = [pod([container({"cpu": "1"})])]
        self.kept: dict[str, str] = {}
        self.calls: list[str] = []
        self.wanted = {"actor": 2, "replay": 2, "learner": 1}
        self.volumes: list[Any] = []
        self.nodes_readable = False
        self.broken = self.broken_replay = False
        self.host_restarts = 0
        self.chosen_actors: int | None = None
        self.bill = "this release"

    def pods(self) -> list[Any]:
        if self.broken:
            raise OSError("the API server is away")
        return self.items

    def claims(self) -> list[Any]:
        return self.volumes

    def node(self, name: str) -> None:
        return None

    def wanted_replicas(self) -> dict[str, int]:
        return dict(self.wanted)

    def state(self) -> dict[str, str]:
        return self.kept

    def save_state(self, state: dict[str, str | None]) -> None:
        merged: dict[str, Any] = {**self.kept, **state}
        self.kept = {key: value for key, value in merged.items() if value is not None}

    def remove_meter(self) -> None:
        self.calls.append("remove the meter")

    def scale(self, component: str, replicas: int) -> None:
        if component == "replay" and self.broken_replay:
            raise OSError("a conflict")
        self.wanted[component] = replicas
        self.calls.append(component if not replicas else f"{component}={replicas}")


STATUS: dict[str, Any] = {
    "state": "training", "over": None, "run_dir": "/runs/a", "resumed_dollars": 0.0,
    "counters": {"env_frames": 1, "dollars": 1},
}  # fmt: skip


class Scene:
    """A meter, its cluster, its learners and the time."""

    def __init__(
        self, budget: float = 0.0, cluster: FakeCluster | None = None, learners: int = 1
    ) -> None:
        self.cluster = cluster or FakeCluster()
        self.now = 1000.0
        self.clock = 0.0
        self.goal = Goal(budget, key="goal", run="a", shards=2)
        self.statuses: list[dict[str, Any] | None] = [None] * learners
        self.settings: dict[str, Any] = {"prices": DOLLAR_AN_HOUR, "defaultFamily": "x"}
        self.meter = self.new()

    def new(self) -> CostMeter:
        prices = PriceList(Settings.model_validate(self.settings))
        learners = [partial(self._ask, rank) for rank in range(len(self.statuses))]
        return CostMeter(
            self.cluster, prices, learners, self.goal, None, lambda: self.now, lambda: self.clock
        )

    def _ask(self, rank: int) -> dict[str, Any] | None:
        return self.statuses[rank]

    def learner(self, state: str, over: str | None = None, frames: int = 0,
                dollars: float = 0.0, rank: int = 0) -> None:  # fmt: skip
        counters = {"env_frames": frames, "dollars": dollars}
        own = {"run_dir": f"/runs/{self.goal.run}", "resumed_dollars": dollars}
        self.statuses[rank] = {"state": state, "over": over, "counters": counters, **own}

    def hours(self, hours: float) -> None:
        self.passes(3600 * hours)
        self.meter.reconcile()

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.clock += seconds


def test_the_bill_is_rate_times_time() -> None:
    scene = Scene()
    scene.learner("training", frames=2_000_000)
    scene.meter.reconcile()
    scene.hours(2)
    bill = scene.meter.status()
    assert bill["dollars"] == pytest.approx(2.0)
    assert bill["dollars_per_billion_frames"] == pytest.approx(1000.0)
    scene.cluster.items *= 3  # three actors from now on
    scene.meter.reconcile()
    scene.hours(1)
    assert scene.meter.status()["dollars"] == pytest.approx(5.0)
    text = generate_latest(scene.meter.registry).decode()
    assert 'seedbed_cost_dollars_per_hour{component="actor",tier="on-demand"} 3.0' in text
    assert 'seedbed_cost_price_table{date="2026-08-03",table="us-central1-aug-2026"} 1.0' in text


def test_the_state_keeps_how_far_the_run_is_over_restarts_and_the_end() -> None:
    scene = Scene(learners=2)
    more = {
        "stop": {"env_frames": 80, "updates": 0, "seconds": 0, "dollars": 0},
        "stop_reason": None, "eta": {"seconds": 9.0}, "evaluation": None,
        "numbers": {"mean_return": float("nan")},
    }  # fmt: skip
    for rank, frames in enumerate((30, 10)):
        scene.learner("training", frames=frames, rank=rank)
        status = scene.statuses[rank]
        assert status is not None
        status |= more
        status["counters"] |= {"updates": 5, "seconds": 2.0}
    scene.hours(1)
    kept = json.loads(scene.cluster.kept["progress"])
    assert (kept["run"], kept["state"], kept["env_frames"]) == ("a", "training", 40)
    assert (kept["done"], kept["seconds_left"], kept["mean_return"]) == (0.5, 9.0, None)
    scene.statuses = [None, None]
    scene.meter = scene.new()
    scene.hours(1)
    assert json.loads(scene.cluster.kept["progress"]) == kept, "it outlives the learners"


def test_while_no_meter_runs_the_pods_cost_on() -> None:
    scene = Scene()
    scene.meter.reconcile()
    scene.hours(1)
    scene.passes(3600)
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.meter.status()["dollars"] == pytest.approx(2.0)


def test_an_api_server_that_is_away_stops_no_clock() -> None:
    scene = Scene()
    scene.meter.reconcile()
    scene.cluster.broken = True
    scene.hours(1)
    assert scene.meter.status()["dollars"] == pytest.approx(1.0)
    assert b'seedbed_cost_errors_total{part="pods"} 1.0' in generate_latest(scene.meter.registry)


def test_actors_leave_first_and_the_learner_when_it_is_done() -> None:
    scene = Scene()
    scene.learner("training")
    scene.meter.reconcile()
    assert scene.cluster.calls == []
    scene.learner("waiting", over="stop.env_frames: 10 of 10")  # the last evaluation
    scene.meter.reconcile()
    assert scene.cluster.calls == ["actor"]
    assert "finished" not in scene.cluster.kept
    scene.learner("finished", over="stop.env_frames: 10 of 10")
    scene.meter.reconcile()
    assert scene.cluster.calls == ["actor", "replay", "learner"]
    assert scene.cluster.kept["finished"] == "stop.env_frames: 10 of 10"
    assert b'reason="stop.env_frames"} 1.0' in generate_latest(scene.meter.registry)
    # Both have gone, and the meter's own pod is no cost of the experiment: nothing happens any
    # more, however long it stays like that, and the record stays what it was.
    scene.statuses, ended = [None], dict(scene.cluster.kept)
    scene.cluster.items[0].metadata.labels["app.kubernetes.io/component"] = "cost"
    scene.meter.reconcile()
    spent = scene.meter.status()["dollars"]
    scene.hours(1000)
    assert len(scene.cluster.calls) == 3
    assert scene.meter.status()["dollars"] == spent
    for key in ("finished", "finishedAt"):
        assert scene.cluster.kept[key] == ended[key]


def test_shards_are_priced_and_their_end_is_tried_until_it_is_there() -> None:
    scene = Scene()
    shards = [pod([container({"cpu": "2"})]) for _ in range(2)]
    for shard in shards:
        shard.metadata.labels["app.kubernetes.io/component"] = "replay"
    scene.cluster.items = shards
    scene.meter.reconcile()
    text = generate_latest(scene.meter.registry).decode()
    assert 'seedbed_cost_dollars_per_hour{component="replay",tier="on-demand"} 4.0' in text
    assert 'seedbed_cost_pods{component="replay"} 2.0' in text
    scene.learner("finished", over="stop.env_frames: 10 of 10")
    scene.cluster.broken_replay = True
    scene.meter.reconcile()
    assert scene.cluster.calls == ["actor", "learner"], "shards hold up no accelerator"
    scene.cluster.broken_replay = False
    scene.meter.reconcile()
    assert scene.cluster.calls == ["actor", "learner", "replay"]


def test_a_learner_on_an_old_volume_knows_what_it_has_cost() -> None:
    scene = Scene()
    scene.learner("training", dollars=7.0)
    scene.meter.reconcile()
    assert scene.meter.status()["dollars"] == pytest.approx(7.0)
    # From then on the meter counts, and the learner asks it.
    scene.learner("training", dollars=9.0)
    scene.meter.reconcile()
    assert scene.meter.status()["dollars"] == pytest.approx(7.0)


OVER = "stop.env_frames: 30 of 30"


def test_several_learners_end_when_the_last_one_has() -> None:
    scene = Scene(learners=3)
    for rank in range(3):
        scene.learner("training", frames=10 * (rank + 1), rank=rank)
    scene.meter.reconcile()
    assert scene.meter.ledger.frames == 60, "frames of all of them"
    scene.learner("waiting", over=OVER, rank=1)
    scene.meter.reconcile()
    assert scene.cluster.calls == ["actor"], "the others will hear of it"
    scene.learner("finished", over=OVER, rank=1)
    scene.learner("waiting", over=OVER, rank=0)
    scene.meter.reconcile()
    scene.hours(10)
    assert scene.cluster.calls == ["actor"], "a last evaluation takes as long as it takes"
    for rank in (0, 2):
        scene.learner("finished", over=OVER, rank=rank)
    scene.meter.reconcile()
    assert scene.cluster.calls == ["actor", "replay", "learner"]
    assert scene.cluster.kept["finished"] == OVER


def test_a_learner_that_is_silent_holds_up_the_end_for_a_while_only() -> None:
    scene = Scene(learners=3)
    scene.learner("training", frames=10)
    scene.learner("training", frames=20, rank=1)
    scene.meter.reconcile()
    scene.statuses[0] = None
    scene.meter.reconcile()
    assert scene.meter.ledger.frames == 30, "what it had done counts while it is away"
    scene.hours(1)
    scene.learner("finished", over=OVER, rank=1)
    scene.learner("waiting", over=OVER, rank=2)
    scene.meter.reconcile()
    scene.learner("finished", over=OVER, rank=2)
    scene.hours((STRAGGLER_TIMEOUT_S - 1) / 3600)
    assert "learner" not in scene.cluster.calls, "it may come back and write its checkpoint"
    scene.hours(2 / 3600)
    assert scene.cluster.calls[-2:] == ["replay", "learner"]
    assert scene.cluster.kept["finished"] == OVER


def test_a_learner_that_hears_of_no_end_does_not_hold_it_up_for_ever() -> None:
    """It crashes again and again, or nobody reaches it."""
    scene = Scene(learners=2)
    scene.learner("finished", over=OVER)
    scene.learner("waiting", rank=1)
    scene.meter.reconcile()
    scene.statuses[1] = None
    scene.hours((STRAGGLER_TIMEOUT_S - 1) / 3600)
    assert scene.cluster.calls == ["actor"]
    scene.learner("waiting", rank=1)
    scene.hours(2 / 3600)
    assert scene.cluster.calls[-1] == "learner"


def test_a_new_end_waits_anew() -> None:
    scene = Scene(learners=2)
    scene.learner("finished", over=OVER)
    scene.learner("training", rank=1)
    scene.meter.reconcile()
    scene.learner("training")  # with another condition
    scene.hours(1)
    scene.learner("finished", over=OVER)
    scene.meter.reconcile()
    assert "learner" not in scene.cluster.calls


def test_each_learner_on_an_old_volume_says_what_it_has_cost() -> None:
    """All of them were told the same bill, so it is the largest that counts."""
    scene = Scene(learners=2)
    scene.learner("training", dollars=7.0)
    scene.meter.reconcile()
    scene.learner("training", dollars=7.5, rank=1)
    scene.meter.reconcile()
    assert scene.meter.status()["dollars"] == pytest.approx(7.5)


@pytest.mark.parametrize("learner", ["training", None])
def test_a_budget_ends_what_the_learner_does_not(learner: str | None) -> None:
    scene = Scene(budget=2.0)
    if learner:
        scene.learner(learner)
    scene.meter.reconcile()
    scene.hours(2.01)
    assert scene.cluster.calls == [], "the learner has a moment to end by itself"
    scene.hours(0.1)
    assert scene.cluster.calls == ["actor", "replay", "learner"]
    ended = scene.cluster.kept["finished"]
    assert "of 2, ended by the cost meter" in ended
    scene.hours(0.1)  # while the pods leave
    assert scene.cluster.kept["finished"] == ended


def test_a_learner_that_does_not_answer_has_no_status(tmp_path: Path) -> None:
    assert read_learner((tmp_path / "status").as_uri()) is None
    (tmp_path / "status").write_text("{")
    assert read_learner((tmp_path / "status").as_uri()) is None
    (tmp_path / "status").write_text('{"state": "training"}')
    assert read_learner((tmp_path / "status").as_uri()) == {"state": "training"}


@pytest.mark.parametrize(
    "answer",
    [
        {"state": "training"},
        [],
        "x",
        {**STATUS, "state": 1},
        {**STATUS, "counters": {"env_frames": "many", "dollars": 1}},
        {**STATUS, "counters": {"env_frames": 1, "dollars": float("nan")}},
        {**STATUS, "counters": {"env_frames": float("inf"), "dollars": 1}},
        {**STATUS, "resumed_dollars": -1},
        {**STATUS, "over": [1]},
        {**STATUS, "run_dir": "/runs/b"},
    ],
)
def test_an_answer_that_is_no_status_counts_as_none(answer: Any) -> None:
    scene = Scene(learners=2)
    scene.learner("training", frames=7, rank=1)
    scene.statuses[0] = answer
    scene.hours(1)
    assert scene.meter.ledger.frames == 7, "the other learner counts"
    assert not scene.meter.errors


def test_a_learner_that_cannot_be_asked_ends_no_loop() -> None:
    scene = Scene()

    def broken() -> None:
        raise RuntimeError("a defect")

    scene.meter.learners.asks = [broken]
    scene.meter.reconcile()
    scene.hours(1)
    assert not scene.meter.errors
    assert scene.meter.dollars > 0, "the bill goes on"
