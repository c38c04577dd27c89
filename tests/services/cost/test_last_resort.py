"""The brake outside the meter."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from seedbed.services.cost.last_resort import hold_at_zero
from tests.services.cost.test_meter import FakeCluster

NOW = 1_000_000.0
AT_ZERO = {"actor": 0, "replay": 0, "learner": 0}


def held(state: dict[str, str], saved_ago_s: float, budget: float = 10.0) -> FakeCluster:
    """After the last resort; its one pod has run for two hours."""
    cluster = FakeCluster()
    cluster.items[0].status.start_time = datetime.fromtimestamp(NOW - 7200, UTC)
    cluster.kept = {"unixTime": str(NOW - saved_ago_s), **state}
    hold_at_zero(cluster, budget, "goal", lambda: NOW)
    return cluster


def goes_on(cluster: FakeCluster) -> bool:
    return not cluster.calls and "finished" not in cluster.kept


@pytest.mark.parametrize("key", ["finished", "paused"])
def test_a_dead_meter_leaves_nothing_up(key: str) -> None:
    reason = {"finished": "stop.updates: 3 of 3", "paused": "value"}[key]
    assert held({key: reason}, 600).wanted == AT_ZERO
    assert held({key: reason}, 600).kept[key] == reason
    assert goes_on(held({"paused": reason}, 20)), "a meter that lives holds it at zero itself"


def test_time_without_a_meter_counts_against_the_budget() -> None:
    spent = {"dollars": "5", "dollarsPerHour": "3"}
    ended = held(spent, 3 * 3600)
    assert ended.wanted == AT_ZERO, "5 dollars and two hours of the present pods"
    assert ended.kept["finished"] == (
        "stop.dollars: 11 of 10, ended by the last resort: the meter has saved nothing for 10800 s"
    )
    assert ended.kept["resumeReplicas"] == '{"actor": 2, "replay": 2, "learner": 1}'
    assert goes_on(held(spent, 3600)), "one hour since the last save"
    assert goes_on(held(spent, 3 * 3600, budget=0.0))


def test_a_meter_that_does_not_brake_is_overruled() -> None:
    assert goes_on(held({"dollars": "10.4"}, 5)), "the meter has until 1.02 and a moment"
    assert held({"dollars": "10.5"}, 5).wanted == AT_ZERO


def test_a_weekend_without_nodes_is_no_spending() -> None:
    cluster = FakeCluster()
    cluster.items = []
    cluster.kept = {"unixTime": "1000", "dollars": "5", "dollarsPerHour": "3"}
    hold_at_zero(cluster, 10.0, "goal", lambda: NOW)
    assert goes_on(cluster)


def never_saved(budget: float, age_s: float) -> FakeCluster:
    cluster = FakeCluster()
    cluster.items[0].status.start_time = datetime.fromtimestamp(NOW - age_s, UTC)
    hold_at_zero(cluster, budget, "goal", lambda: NOW)
    return cluster


def test_a_meter_that_has_never_saved_anything_pauses_what_has_a_budget() -> None:
    cluster = never_saved(10.0, 3700)
    assert cluster.wanted == AT_ZERO
    assert cluster.kept["paused"].startswith("last resort: in 3700 s the meter has saved nothing")
    assert cluster.kept["resumeReplicas"] == '{"actor": 2, "replay": 2, "learner": 1}'
    assert "finished" not in cluster.kept
    assert goes_on(never_saved(10.0, 1800))
    assert goes_on(never_saved(0.0, 3700))
