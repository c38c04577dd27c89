"""What Prometheus reads of a set's controller."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from seedbed.runtime.metrics import StatsRegistry
from seedbed.services.sets.controller import SetController
from seedbed.services.sets.metrics import HOLDS, STATES, SetMetrics
from seedbed.sets.needs import Limits
from tests.support.set_cluster import RATE, STEP_S, SetCluster, controller, spec, until

LR = "learner.optimizer.learning_rate=1e-3,2e-3,3e-3"
STEP_DOLLARS = RATE / 3600 * STEP_S
RUN_DOLLARS = 20 * STEP_DOLLARS
LONG = "stop.env_frames=1000000"  # 20 steps


@pytest.fixture
def cluster(tmp_path: Path) -> SetCluster:
    return SetCluster(tmp_path)


class Scraped:
    """The samples of a controller, as Prometheus reads them."""

    def __init__(self, one: SetController) -> None:
        self._registry = StatsRegistry(SetMetrics("lab", one))

    def __call__(self, name: str, label: str = "") -> dict[str, float]:
        """Return the samples of a metric by one of its labels."""
        found = {}
        for family in text_string_to_metric_families(generate_latest(self._registry).decode()):
            for sample in family.samples:
                if sample.name == f"seedbed_set_{name}":
                    assert sample.labels["set"] == "lab"
                    found[sample.labels.get(label, "")] = sample.value
        return found


def test_the_states_of_runs_and_what_is_awake(cluster: SetCluster, tmp_path: Path) -> None:
    one = controller(cluster, spec(LR, LONG), tmp_path / "set")
    scraped = Scraped(one)
    assert scraped("last_reconcile_timestamp_seconds") == {}, "no round has ended"
    until(cluster, one, lambda: list(cluster.states().values()).count("training") == 2)
    runs = scraped("runs", "state")
    assert runs.keys() == set(STATES), "a panel would keep the last value of one that is missing"
    assert {state: number for state, number in runs.items() if number} == {
        "training": 2, "waiting": 1,
    }  # fmt: skip
    assert scraped("awake", "resource") == {"learners": 2, "actors": 4, "gpus": 0}
    assert scraped("limit", "resource") == {"learners": 2}
    assert scraped("run_idle_seconds", "run").keys() == one.awake.keys()
    assert scraped("last_reconcile_timestamp_seconds") == {"": pytest.approx(cluster.now, abs=5)}
    name = next(iter(one.awake))
    cluster.restarts[name] = 3
    cluster.makes_pods = lambda workload: "evicted" if workload == f"{name}-learner" else ""
    one.reconcile()
    cluster.makes_pods = lambda _: ""
    until(cluster, one, lambda: set(cluster.states().values()) == {"finished"})
    taken = scraped("run_preemptions_total", "run")
    assert {run for run, number in taken.items() if number} == {name}
    assert set(scraped("run_failures_total", "run").values()) == {0}, "none was seen to restart"
    assert scraped("runs", "state")["training"] == 0
    assert set(scraped("run_score", "run").values()) == {100.0}
    assert scraped("forecast_dollars")[""] == pytest.approx(scraped("dollars")[""])


def test_the_forecast_counts_the_runs_that_wait(cluster: SetCluster, tmp_path: Path) -> None:
    one = controller(cluster, spec(LR, LONG, limits=Limits(1)), tmp_path / "set")
    scraped = Scraped(one)
    assert scraped("forecast_dollars") == {}
    until(cluster, one, lambda: one.page.frames >= 500_000)
    assert scraped("runs", "state")["waiting"] == 2
    assert scraped("forecast_dollars")[""] == pytest.approx(3 * RUN_DOLLARS, rel=0.3)
    waits = next(name for name, state in cluster.states().items() if state == "waiting")
    cluster.data["set"][f"paused.{waits}"] = "not now"  # and goes on later
    one.reconcile()
    assert scraped("forecast_dollars")[""] == pytest.approx(3 * RUN_DOLLARS, rel=0.3)


def test_runs_whose_frames_are_not_known_have_no_forecast(
    cluster: SetCluster, tmp_path: Path
) -> None:
    cluster.frames_to_score = lambda _: 1_000_000
    wanted = spec(LR, "stop.env_frames=0", "stop.updates=1000000", limits=Limits(1))
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: one.page.frames >= 500_000)
    assert Scraped(one)("forecast_dollars") == {}


def test_the_forecast_of_a_halving_reaches_to_the_next_rungs(
    cluster: SetCluster, tmp_path: Path
) -> None:
    """Which runs go beyond them is not known before."""
    halving = {"first": 500_000, "factor": 3}
    one = controller(
        cluster, spec(LR, "stop.env_frames=4500000", halving=halving), tmp_path / "set"
    )
    until(cluster, one, lambda: one.page.frames >= 500_000)
    assert Scraped(one)("forecast_dollars")[""] == pytest.approx(1.5 * RUN_DOLLARS, rel=0.3)


def test_what_holds_the_runs_that_wait(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, LONG, budget={"dollars": 1.5 * RUN_DOLLARS})
    one = controller(cluster, wanted, tmp_path / "set")
    scraped = Scraped(one)
    one.reconcile()

    def held_by() -> list[str]:
        held = scraped("held", "by")
        assert held.keys() == set(HOLDS)
        return [name for name, value in held.items() if value]

    cluster.data["set"]["paused"] = "over the weekend"
    until(cluster, one, lambda: held_by() == ["pause"])
    del cluster.data["set"]["paused"]
    until(cluster, one, lambda: "finished" in cluster.states().values() and not one.book.up())
    assert held_by() == ["budget"]


def test_a_budget_that_is_only_reserved_holds_nothing(cluster: SetCluster, tmp_path: Path) -> None:
    """Nor does one that runs have found full whose objects are refused."""
    wanted = spec(LR, LONG, budget={"dollars": 1.5 * RUN_DOLLARS})
    one = controller(cluster, wanted, tmp_path / "set")
    scraped = Scraped(one)
    cluster.makes_pods = lambda name: "exceeded quota" if name.endswith("-learner") else ""
    for _ in range(60):
        one.reconcile()
        assert not any(scraped("held", "by").values()), one.holds
        cluster.step()
    assert scraped("refused")[""] >= 2
    cluster.makes_pods = lambda _: ""
    until(cluster, one, lambda: "training" in cluster.states().values() and bool(one.holds))
    assert not any(scraped("held", "by").values())


def test_failures_that_are_alike_hold_the_others(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec("learner.optimizer.learning_rate=1e-3,2e-3,3e-3,4e-3,5e-3", LONG)
    for run in wanted.wanted.runs:
        cluster.fails[run.name] = (10, "out of memory")
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: not one.book.up() and bool(one.holds))
    held = Scraped(one)("held", "by")
    assert [name for name, value in held.items() if value] == ["failures"]
