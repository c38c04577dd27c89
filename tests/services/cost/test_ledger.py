"""The bill through restarts, gaps and clocks that jump; one for each run."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from seedbed.runtime.exit_codes import SeedbedError
from seedbed.services.cost.ledger import MAX_GAP_S, Charge, Ledger
from tests.services.cost.test_meter import Scene

ACTOR = ("actor", "spot")


def ledger(state: dict[str, Any]) -> Ledger:
    return Ledger(state, "a", 0.0)


def saved_at(unix_time: str) -> dict[str, str]:
    """A state with 5 dollars."""
    run = {"dollars": 5.0, "frames": 0, "parts": {}, "lower": 5.0, "upper": 5.0}
    return {"runs": json.dumps({"a": run}), "unixTime": unix_time}


def test_a_clock_that_jumps_costs_nothing() -> None:
    scene = Scene()
    scene.meter.reconcile()
    for jump in (-3600, 7200, -3600):
        scene.now += jump
        scene.hours(1 / 3)
    assert scene.meter.dollars == pytest.approx(1.0)


def test_a_clock_that_was_ahead_at_the_last_save_costs_nothing() -> None:
    found = ledger(saved_at("2000"))
    found.reprice([Charge(ACTOR, 1.0)], 0.0, now=1000.0)
    assert found.dollars == 5.0
    found.reprice([Charge(ACTOR, 1.0)], 3600.0, now=500.0)
    assert found.dollars == 6.0


def test_pods_that_began_after_a_weekend_without_nodes_cost_from_their_start() -> None:
    """Sixty hours at 1 $/h had ended a run with a budget of 20."""
    scene = Scene(budget=20.0)
    scene.meter.reconcile()
    scene.hours(1)
    scene.passes(60 * 3600)
    begun = datetime.fromtimestamp(scene.now - 60, UTC)
    scene.cluster.items[0].status.start_time = begun
    scene.meter = scene.new()
    scene.meter.reconcile()
    assert scene.meter.dollars == pytest.approx(1.0 + 1 / 60)
    assert "finished" not in scene.cluster.kept


def test_the_longest_gap_is_charged_as_a_day_and_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    found = ledger(saved_at("0"))
    found.reprice([Charge(ACTOR, 1.0, since=-50.0)], 0.0, now=60 * 3600.0)
    assert found.dollars == pytest.approx(5.0 + MAX_GAP_S / 3600)
    assert "216000 s without a meter: 24 dollars" in caplog.text
    assert "86400 s at most" in caplog.text


def test_what_ran_before_the_first_meter_is_charged() -> None:
    found = ledger({})
    found.reprice([Charge(ACTOR, 2.0, since=0.0)], 0.0, now=3600.0)
    assert found.dollars == 2.0


def test_nothing_is_forgotten_by_a_meter_that_never_saw_the_pods() -> None:
    """It was killed before the API server answered."""
    saved = ledger(saved_at("1000")).to_state(500.0, now=4600.0)
    assert saved["unixTime"] == "1000.000"
    found = ledger({key: value for key, value in saved.items() if value is not None})
    found.reprice([Charge(ACTOR, 1.0)], 0.0, now=4600.0)
    assert found.dollars == pytest.approx(6.0)


def test_a_meter_that_moves_before_the_first_answer_asks_again() -> None:
    """It had kept 0.008 of 7 dollars."""
    scene = Scene(learners=2)
    scene.meter.reconcile()
    scene.hours(0.01)
    scene.learner("training", dollars=7.0, rank=1)
    scene.meter.reconcile()
    scene.hours(0.01)  # saves
    scene.meter = scene.new()
    scene.learner("training", dollars=8.0)
    scene.learner("training", dollars=9.0, rank=1)
    scene.meter.reconcile()
    assert scene.meter.dollars == pytest.approx(8.0), "learner 1 was asked before"
    assert scene.cluster.kept["askedLearners"] == "[0, 1]"


def test_each_run_asks_its_learners_what_an_earlier_release_has_cost() -> None:
    scene = Scene()
    scene.learner("training", frames=1, dollars=2.0)
    scene.meter.reconcile()
    scene.hours(1)
    assert scene.meter.dollars == pytest.approx(3.0)
    scene.goal = scene.goal._replace(run="b", key="b")
    scene.meter = scene.new()
    scene.learner("training", frames=1, dollars=7.0)
    scene.meter.reconcile()
    assert scene.meter.dollars == pytest.approx(7.0)


def test_what_a_learner_has_estimated_since_its_start_is_no_bill_of_before() -> None:
    scene = Scene()
    scene.learner("training", frames=1, dollars=9.0)
    assert scene.statuses[0] is not None
    scene.statuses[0]["resumed_dollars"] = 2.0
    scene.meter.reconcile()
    assert scene.meter.dollars == 2.0


def test_another_release_on_the_volume_adds_to_the_bill() -> None:
    """What its pods cost before the learner's first answer is not in the learner's count."""
    scene = Scene()
    scene.meter.reconcile()
    scene.hours(2)
    scene.learner("training", frames=1, dollars=7.0)
    assert scene.statuses[0] is not None
    # It has not heard of this bill yet, and then it has.
    scene.statuses[0] |= {"bill": "of before", "earlier_dollars": 0.0}
    scene.meter.reconcile()
    assert scene.meter.dollars == pytest.approx(7.0)
    scene.statuses[0] |= {"bill": scene.cluster.bill, "earlier_dollars": 7.0}
    for _ in range(2):
        scene.meter.reconcile()
        assert scene.meter.dollars == pytest.approx(9.0)
        scene.meter = scene.new()


def test_a_second_run_has_its_own_bill_and_frames() -> None:
    """50 M and 25 M frames for 15 dollars were 300 dollars a billion."""
    scene = Scene(budget=12.0)
    scene.learner("training", frames=50_000_000)
    scene.meter.reconcile()
    scene.hours(10)
    scene.goal = scene.goal._replace(run="b", key="b")
    scene.meter = scene.new()
    scene.statuses[0] = {  # the first run's learner has not left yet
        "state": "training",
        "over": None,
        "run_dir": "/runs/a/learner-0",
        "resumed_dollars": 10.0,
        "counters": {"env_frames": 50_000_000, "dollars": 10.0},
    }
    scene.meter.reconcile()
    assert (scene.meter.dollars, scene.meter.ledger.frames) == (0.0, 0)
    scene.statuses[0] |= {
        "run_dir": "/runs/b",
        "resumed_dollars": 0.0,
        "counters": {"env_frames": 25_000_000, "dollars": 0.0},
    }
    scene.hours(5)
    assert scene.meter.dollars == pytest.approx(5.0)
    assert scene.meter.status()["dollars_per_billion_frames"] == pytest.approx(200.0)
    assert "finished" not in scene.cluster.kept, "its budget is its own"
    runs = json.loads(scene.cluster.kept["runs"])
    assert runs["a"]["dollars"] == pytest.approx(10.0)
    assert (runs["a"]["frames"], runs["b"]["frames"]) == (50_000_000, 25_000_000)
    # And back again.
    scene.goal = scene.goal._replace(run="a", key="a")
    scene.meter = scene.new()
    assert scene.meter.dollars == pytest.approx(10.0)


def test_the_parts_are_the_bill() -> None:
    found = ledger({})
    learner = ("learner", "on-demand")
    found.reprice([Charge(ACTOR, 1.0), Charge(ACTOR, 1.0), Charge(learner, 4.0)], 0.0, 0.0)
    found.charge(1800.0)
    found.carry(10.0, 0.0)
    found = ledger({k: v for k, v in found.to_state(1800.0, 0.0).items() if v is not None})
    assert found.present.parts == {
        "actor/spot": 1.0, "learner/on-demand": 2.0, "earlier/unknown": 7.0,
    }  # fmt: skip
    assert found.dollars == sum(found.present.parts.values())


@pytest.mark.parametrize(
    "state",
    [
        *({"runs": saved_at("0")["runs"].replace("5.0", number)} for number in ('"x"', "NaN")),
        *({"runs": text} for text in ("[]", "{", '{"a": {"dollars": 1}}')),
        {"unixTime": "-1"},
        {"askedLearners": "7"},
    ],
)
def test_a_state_that_no_meter_wrote_is_refused_with_a_sentence(state: dict[str, str]) -> None:
    with pytest.raises(SeedbedError, match="kubectl edit configmap"):
        ledger(state)
