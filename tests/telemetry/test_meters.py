"""The learner's view of a cost meter, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from seedbed.config import parse_experiment
from seedbed.runtime.http import MetricsServer
from seedbed.telemetry import Counters, Telemetry
from seedbed.telemetry.cost_meter import Reading

PRICED = "{cpu_hour: 3600, memory_gib_hour: 0, cpus: 1, meter: 'http://127.0.0.1:%d/status'}"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def telemetry(port: int, clock: Clock, counters: Counters) -> Telemetry:
    experiment = parse_experiment(
        f"name: a\nenvironment: {{id: x}}\ncost: {PRICED % port}\nstop: {{dollars: 100}}"
    )
    return Telemetry(experiment, None, counters, now=clock)


def test_the_meters_bill_counts_and_between_its_answers_its_price(tmp_path: Path) -> None:
    bill: dict[str, Any] = {"dollars": 40.0, "dollars_per_hour": 1800.0}
    meter = MetricsServer(0, CollectorRegistry(), status=lambda: bill)
    clock, counters = Clock(), Counters()
    ours = telemetry(meter.port, clock, counters)
    clock.now += 10
    ours.cost.account()
    assert counters.dollars == 40.0, "it prices the actors too, and what was before"
    clock.now += 10
    ours.cost.account()
    assert counters.dollars == pytest.approx(40.0 + 10 * 0.5)
    meter.close()  # and it is away from now on: at the last price
    clock.now += 10
    ours.cost.account()
    assert counters.dollars == pytest.approx(40.0 + 20 * 0.5)


Unanswered = tuple[Clock, Counters, Telemetry]


@pytest.fixture
def unanswered() -> Iterator[Unanswered]:
    """Return the telemetry of a learner whose meter has not answered yet, with its clock."""
    silent = MetricsServer(0, CollectorRegistry())  # 404 on /status
    clock, counters = Clock(), Counters()
    yield clock, counters, telemetry(silent.port, clock, counters)
    silent.close()


def test_without_an_answer_the_experiments_prices_count_after_two_minutes(
    unanswered: Unanswered,
) -> None:
    """Not before: they are this machine's, and the release's bill is another one."""
    clock, counters, ours = unanswered
    for seconds, dollars in ((10, 0.0), (109, 0.0), (1, 120.0), (10, 130.0)):
        clock.now += seconds
        ours.cost.account()
        assert counters.dollars == pytest.approx(dollars)
        assert ours.cost.dollars_per_hour == (3600.0 if dollars else 0.0)


def test_a_bill_does_not_fall_with_the_first_answer_of_a_meter(unanswered: Unanswered) -> None:
    clock, counters, ours = unanswered
    counters.dollars = 50.0  # of the checkpoint
    clock.now += 30
    ours.cost.account()
    assert (counters.dollars, ours.cost.dollars_per_hour) == (50.0, 0.0)
    assert ours.cost._meter is not None
    ours.cost._meter.reading = Reading(50.2, 36.0)
    clock.now += 10
    ours.cost.account()
    assert (counters.dollars, ours.cost.dollars_per_hour) == (50.2, 36.0)


def test_what_was_estimated_before_the_first_answer_is_in_that_answer(
    unanswered: Unanswered,
) -> None:
    clock, counters, ours = unanswered
    counters.dollars = 50.0  # of the checkpoint
    clock.now += 120
    ours.cost.account()
    assert (counters.dollars, ours.status()["resumed_dollars"]) == (170.0, 50.0)
    assert ours.cost._meter is not None
    ours.cost._meter.reading = Reading(52.0, 1800.0)
    clock.now += 10
    ours.cost.account()
    assert counters.dollars == 52.0
    clock.now += 10
    ours.cost.account()
    assert counters.dollars == pytest.approx(57.0)
    assert ours.status()["resumed_dollars"] == 50.0


def test_the_bill_of_another_release_is_one_from_before(unanswered: Unanswered) -> None:
    _, counters, ours = unanswered
    counters.dollars = 50.0
    ours.cost.resume({"bill": "first", "earlier_dollars": 20.0})
    assert ours.cost._meter is not None
    told = [(Reading(51.0, 0.0, "first"), 20.0), (Reading(2.0, 0.0, "second"), 50.0)]
    for reading, earlier in told:
        ours.cost._meter.reading = reading
        ours.cost.account()
        assert ours.cost.to_json() == {"bill": reading.bill, "earlier_dollars": earlier}
    assert counters.dollars == 51.0, "it does not fall"
    ours.cost._meter.reading = Reading(52.0, 0.0, "second")
    ours.cost.account()
    assert ours.status()["earlier_dollars"] == 50.0
    # A meter that gives its bill no name.
    ours.cost._meter.reading = Reading(53.0, 0.0)
    ours.cost.account()
    assert ours.cost.bill == "second"
