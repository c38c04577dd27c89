"""A release that has finished or is paused is at zero, whoever scales it up, until it goes on."""

from __future__ import annotations

import json

import pytest
from prometheus_client import generate_latest

from tests.services.cost.test_meter import FakeCluster, Scene
from tests.services.cost.test_usage import container, pod

OVER = "stop.env_frames: 10 of 10"
AT_ZERO = {"actor": 0, "replay": 0, "learner": 0}
BEFORE = {"actor": 2, "replay": 2, "learner": 1}


def of(component: str) -> object:
    item = pod([container({"cpu": "1"})])
    item.metadata.labels["app.kubernetes.io/component"] = component
    return item


def finished() -> Scene:
    scene = Scene()
    scene.learner("finished", over=OVER)
    scene.meter.reconcile()
    scene.statuses, scene.cluster.items = [None], []
    assert scene.cluster.wanted == AT_ZERO
    return scene


@pytest.mark.parametrize("component", ["actor", "learner", "replay"])
def test_what_is_scaled_up_after_the_end_goes_to_zero(component: str) -> None:
    scene = finished()
    scene.meter.reconcile()
    for times in (1, 2):
        scene.cluster.wanted[component] = 3
        scene.cluster.items = [of(component)] * 3
        scene.meter.reconcile()
        assert scene.cluster.wanted == AT_ZERO
        text = generate_latest(scene.meter.registry).decode()
        assert f'held_at_zero_total{{component="{component}"}} {times}.0' in text
        scene.cluster.items = []
        scene.hours(50)
    assert scene.meter.dollars == pytest.approx(300.0), "3 pods were there twice 50 hours"


def test_a_restarted_meter_takes_to_zero_what_has_no_pod_yet() -> None:
    scene = finished()
    scene.cluster.wanted["learner"] = 1
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.cluster.wanted == AT_ZERO


def test_pods_that_leave_are_nobodys_doing() -> None:
    scene = Scene()
    scene.cluster.items = [of("actor"), of("learner")]
    scene.learner("finished", over=OVER)
    for _ in range(3):
        scene.meter.reconcile()
    assert not scene.meter.brake.held
    assert scene.cluster.calls == ["actor", "replay", "learner"]


@pytest.mark.parametrize("change", [{"key": "another"}, {"key": "another", "run": "b"}])
def test_another_goal_brings_everything_back(change: dict[str, str]) -> None:
    scene = finished()
    scene.goal = scene.goal._replace(**change)
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE
    assert not {"finished", "finishedAt", "resumeReplicas", "goal"} & set(scene.cluster.kept)
    assert scene.cluster.calls[3:] == ["learner=1", "replay=2", "actor=2"]


def test_the_number_of_learners_and_shards_is_the_charts() -> None:
    """It may have changed with the goal."""
    scene = finished()
    scene.goal = scene.goal._replace(key="another", shards=3)
    scene.statuses = [None, None]
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.cluster.wanted == {"actor": 2, "replay": 3, "learner": 2}


def test_an_end_without_a_goal_stays_an_end() -> None:
    cluster = FakeCluster()
    cluster.kept = {"finished": OVER, "finishedAt": "then"}
    scene = Scene(cluster=cluster)
    scene.learner("training")
    scene.meter.reconcile()
    assert cluster.kept["finished"] == OVER
    assert cluster.wanted == AT_ZERO
    # The way out without another goal.
    del cluster.kept["finished"]
    scene.meter.reconcile()
    assert cluster.wanted == BEFORE


def test_an_end_that_is_called_off_brings_the_actors_back() -> None:
    scene = Scene()
    scene.learner("waiting", over=OVER)
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE | {"actor": 0}
    scene.meter = scene.new()  # in the middle of the last evaluation
    scene.learner("waiting")
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE | {"actor": 0}, "it may still say that it is over"
    scene.learner("training")
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE
    assert "ending" not in scene.cluster.kept


def test_a_state_that_cannot_be_saved_ends_no_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(budget=1.0)
    scene.meter.reconcile()

    def gone(*_: object) -> None:
        raise OSError("the ConfigMap was deleted")

    monkeypatch.setattr(scene.cluster, "state", gone)
    monkeypatch.setattr(scene.cluster, "save_state", gone)
    scene.hours(2)
    assert scene.cluster.wanted == AT_ZERO


class TestLeaving:
    """The meter goes some time after the end."""

    def ended(self, ttl_s: float = 600) -> Scene:
        scene = finished()
        scene.goal = scene.goal._replace(ttl_s=ttl_s)
        scene.meter = scene.new()
        scene.meter.reconcile()
        return scene

    def left(self, scene: Scene) -> bool:
        scene.meter.reconcile()
        return "remove the meter" in scene.cluster.calls

    def test_with_the_bill_in_the_state(self) -> None:
        scene = self.ended()
        scene.passes(599)
        assert not self.left(scene)
        scene.passes(1)
        assert self.left(scene)
        assert scene.cluster.kept["meterLeftAt"] == "1970-01-01T00:26:40+00:00"
        assert scene.cluster.kept["finished"] == OVER
        assert float(scene.cluster.kept["dollars"]) == scene.meter.dollars

    def test_not_without_a_time(self) -> None:
        scene = self.ended(ttl_s=0)
        scene.passes(1e9)
        assert not self.left(scene)

    @pytest.mark.parametrize("why", ["pods", "scaled", "paused", "undated"])
    def test_not_while_there_is_something_to_hold(self, why: str) -> None:
        scene = self.ended()
        if why == "pods":
            scene.cluster.items = [of("learner")]
        elif why == "scaled":
            scene.cluster.wanted["learner"] = 1
        elif why == "paused":
            scene.cluster.kept["paused"] = "by hand"
        else:
            scene.cluster.kept["finishedAt"] = "then"
        scene.passes(600)
        assert not self.left(scene)

    def test_an_upgrade_with_another_goal_brings_back_all(self) -> None:
        scene = self.ended()
        scene.passes(600)
        assert self.left(scene)
        scene.goal = scene.goal._replace(key="another")
        scene.meter = scene.new()
        scene.meter.reconcile()
        assert scene.cluster.wanted == BEFORE
        assert not {"finished", "finishedAt", "meterLeftAt"} & set(scene.cluster.kept)


class TestPause:
    def test_the_value_pauses_and_resumes(self) -> None:
        scene = Scene()
        scene.meter.reconcile()
        scene.goal = scene.goal._replace(paused=True)
        for _ in range(2):  # a restart, an upgrade
            scene.meter = scene.new()
            scene.meter.reconcile()
            assert scene.cluster.wanted == AT_ZERO
            assert scene.cluster.kept["paused"] == "value"
            assert json.loads(scene.cluster.kept["resumeReplicas"]) == BEFORE
        assert scene.cluster.kept["pausedAt"] == "1970-01-01T00:16:40+00:00"
        assert b"seedbed_cost_paused 1.0" in generate_latest(scene.meter.registry)
        scene.goal = scene.goal._replace(paused=False)
        scene.meter = scene.new()
        scene.meter.reconcile()
        assert scene.cluster.wanted == BEFORE
        assert not {"paused", "pausedAt", "resumeReplicas"} & set(scene.cluster.kept)

    def test_a_paused_release_is_held_at_zero(self) -> None:
        scene = Scene()
        scene.cluster.kept = {"paused": "by hand"}
        scene.meter.reconcile()
        assert scene.cluster.wanted == AT_ZERO
        scene.cluster.wanted["learner"] = 1
        scene.cluster.items = [of("learner")]
        scene.meter.reconcile()
        assert scene.cluster.wanted == AT_ZERO
        assert scene.meter.brake.held == {"learner": 1}
        del scene.cluster.kept["paused"]
        scene.meter.reconcile()
        assert scene.cluster.wanted == BEFORE

    def test_a_release_that_idles_is_paused_until_a_person_resumes_it(self) -> None:
        scene = Scene()
        scene.goal = scene.goal._replace(idle_s=600)
        scene.meter = scene.new()
        scene.cluster.items = [of("learner"), of("actor")]
        scene.learner("training", frames=10)
        scene.meter.reconcile()
        scene.hours(599 / 3600)
        scene.learner("training", frames=11)
        scene.hours(599 / 3600)
        scene.cluster.items.pop()
        scene.hours(599 / 3600)
        assert scene.cluster.wanted == BEFORE
        scene.hours(2 / 3600)
        assert scene.cluster.kept["paused"] == (
            "stop.idle_s: no frame for 601 s of 600, with 0 actors"
        )
        assert scene.cluster.wanted == AT_ZERO
        scene.cluster.items, scene.statuses = [], [None]
        scene.meter = scene.new()
        scene.hours(100)
        assert scene.cluster.wanted == AT_ZERO
        del scene.cluster.kept["paused"]
        scene.meter.reconcile()
        assert scene.cluster.wanted == BEFORE
        scene.hours(1)  # waits for a node, which costs nothing
        scene.cluster.items = [of("learner")]
        scene.hours(1)
        assert "paused" not in scene.cluster.kept

    def test_a_learner_that_nobody_reaches_is_idle_without_actors_only(self) -> None:
        scene = Scene()
        scene.goal = scene.goal._replace(idle_s=600)
        scene.meter = scene.new()
        scene.cluster.items = [of("learner"), of("actor")]
        scene.meter.reconcile()
        scene.hours(1)
        assert "paused" not in scene.cluster.kept
        scene.cluster.items.pop()
        scene.hours(1)
        assert "with 0 actors" in scene.cluster.kept["paused"]

    def test_the_end_of_a_paused_release_is_no_news(self) -> None:
        scene = Scene()
        scene.goal = scene.goal._replace(paused=True)
        scene.meter = scene.new()
        scene.learner("finished", over=OVER)
        scene.meter.reconcile()
        scene.meter.reconcile()
        assert "finished" not in scene.cluster.kept


class TestNumbersOfAPause:
    """What a person says of the actors while they are at zero counts afterwards."""

    def paused(self, reason: str = "by hand") -> Scene:
        scene = Scene()
        scene.cluster.chosen_actors = 2
        scene.meter.reconcile()
        scene.cluster.kept["paused"] = reason
        scene.meter.reconcile()
        assert scene.cluster.wanted == AT_ZERO
        return scene

    def resumed(self, scene: Scene) -> int:
        del scene.cluster.kept["paused"]
        scene.meter.reconcile()
        assert "resumeReplicas" not in scene.cluster.kept
        return scene.cluster.wanted["actor"]

    def test_another_number_of_the_chart(self) -> None:
        scene = self.paused()
        scene.cluster.chosen_actors = 7
        scene.meter.reconcile()
        assert self.resumed(scene) == 7

    def test_a_number_that_was_scaled_before_stays_without_another(self) -> None:
        scene = Scene()
        scene.cluster.chosen_actors, scene.cluster.wanted["actor"] = 2, 50
        scene.meter.reconcile()
        scene.cluster.kept["paused"] = "by hand"
        scene.meter.reconcile()
        scene.meter = scene.new()  # an upgrade of anything else
        scene.meter.reconcile()
        assert self.resumed(scene) == 50

    def test_the_upgrade_that_pauses_may_change_it(self) -> None:
        scene = Scene()
        scene.cluster.chosen_actors = 2
        scene.meter.reconcile()
        scene.cluster.chosen_actors = 7
        scene.goal = scene.goal._replace(paused=True)
        scene.meter = scene.new()
        scene.meter.reconcile()
        scene.goal = scene.goal._replace(paused=False)
        scene.meter = scene.new()
        scene.meter.reconcile()
        assert scene.cluster.wanted["actor"] == 7

    def test_a_scale_is_held_at_zero_and_remembered(self) -> None:
        scene = self.paused()
        scene.cluster.wanted["actor"] = 5
        scene.meter.reconcile()
        assert scene.cluster.wanted == AT_ZERO
        assert self.resumed(scene) == 5

    def test_the_last_word_counts(self) -> None:
        scene = self.paused()
        scene.cluster.chosen_actors = 7
        scene.meter.reconcile()
        scene.cluster.wanted["actor"] = 5
        scene.meter = scene.new()
        scene.meter.reconcile()
        assert self.resumed(scene) == 5

    @pytest.mark.parametrize("reason", ["value", "by hand"])
    def test_a_pause_in_the_last_evaluation_comes_back(self, reason: str) -> None:
        """Its learner is at zero, and says neither that it trains nor that it is over."""
        scene = Scene()
        scene.learner("waiting", over=OVER)
        scene.meter.reconcile()
        assert scene.cluster.kept["ending"] == OVER
        scene.goal = scene.goal._replace(paused=reason == "value")
        if reason != "value":
            scene.cluster.kept["paused"] = reason
        scene.meter = scene.new()
        scene.meter.reconcile()
        scene.statuses = [None]
        scene.goal = scene.goal._replace(paused=False)
        scene.cluster.kept.pop("paused")
        scene.meter = scene.new()
        scene.meter.reconcile()
        assert scene.cluster.wanted == BEFORE


class Refusing(FakeCluster):
    """An API server that cannot save the next end or pause, once."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses = 1

    def save_state(self, state: dict[str, str | None]) -> None:
        if self.refuses and ("finished" in state or "paused" in state):
            self.refuses -= 1
            raise OSError("503")
        super().save_state(state)


@pytest.mark.parametrize("phases", [("finished",), ("waiting", "finished")])
def test_an_end_that_is_saved_late_knows_the_way_back(phases: tuple[str, ...]) -> None:
    scene = Scene(cluster=Refusing())
    for state in phases:
        scene.learner(state, over=OVER)
        scene.meter.reconcile()
    assert "finished" not in scene.cluster.kept
    scene.statuses = [None]
    scene.meter.reconcile()
    assert scene.cluster.kept["finished"] == OVER
    assert scene.cluster.wanted == AT_ZERO
    scene.goal = scene.goal._replace(key="another")
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE


def test_a_pause_that_is_saved_late_knows_the_way_back() -> None:
    scene = Scene(cluster=Refusing())
    scene.goal = scene.goal._replace(paused=True)
    scene.meter = scene.new()
    for _ in range(2):
        scene.meter.reconcile()
    assert scene.cluster.kept["paused"] == "value"
    scene.goal = scene.goal._replace(paused=False)
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.cluster.wanted == BEFORE


def test_what_was_spent_is_saved_with_the_end() -> None:
    scene = Scene()
    scene.meter.reconcile()
    scene.passes(7200)
    scene.learner("finished", over=OVER)
    saved: list[dict[str, str | None]] = []
    save = scene.cluster.save_state
    scene.cluster.save_state = lambda state: (saved.append(state), save(state))[1]  # type: ignore[method-assign]
    scene.meter.reconcile()
    (end,) = [state for state in saved if "finished" in state]
    assert float(end["dollars"] or 0) == pytest.approx(2.0)
    assert "resumeReplicas" in end
