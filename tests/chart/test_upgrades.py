"""What an upgrade renders in a release that is there, under each Helm that the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import ApiServer, api_server, helms
from tests.support.chart import NO_METER, SHARDS, Rendered, merged, refused, render

WORKLOADS = {"actor": "Deployment", "learner": "StatefulSet", "replay": "StatefulSet"}
PAUSED: dict[str, Any] = {"paused": True}
KEDA: dict[str, Any] = {"actor": {"autoscaling": {"type": "keda"}}}
METER: dict[str, Any] = {"actor": {"autoscaling": {"type": "price"}}}
EXTERNAL: dict[str, Any] = {"replicas": "external"}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


each_helm = pytest.mark.parametrize("binary", helms(), ids=lambda path: Path(path).name)


def numbers(rendered: Rendered) -> dict[str, int | None]:
    """Replicas by component; None where the field is left out."""
    return {
        component: item["spec"].get("replicas")
        for component, kind in WORKLOADS.items()
        for item in rendered.of(kind)
        if item["metadata"]["name"] == f"pong-{component}"
    }


def arguments_of_meter(rendered: Rendered) -> list[str]:
    (meter,) = rendered.pods()["pong-cost"]["spec"]["containers"]
    arguments: list[str] = meter["args"]
    return arguments


@each_helm
def test_a_scaled_number_stays(server: ApiServer, binary: str) -> None:
    server.upgrade(binary=binary)
    server.scale("Deployment", "pong-actor", 50)
    assert numbers(server.upgrade({"pod": {"queueName": "q"}}, binary=binary))["actor"] == 50
    assert numbers(server.upgrade({"actor": {"replicas": 3}}, binary=binary))["actor"] == 3


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("end", ["finished", "paused"])
def test_an_upgrade_starts_nothing_that_is_held_at_zero(server: ApiServer, end: str) -> None:
    server.upgrade(SHARDS)
    server.scale("Deployment", "pong-actor", 50)
    state = {end: "stop.idle_s: 900 of 600", "resumeReplicas": '{"actor": 50, "learner": 1}'}
    server.objects["ConfigMap", "pong-state"]["data"] = state
    # Also what is scaled up meanwhile, and numbers that are new in the values.
    another_run = {"replay": {"shards": 3}, "learner": {"run": "second"}}
    for more in ({}, {"actor": {"replicas": 7}}, another_run):
        held = numbers(server.upgrade(merged(SHARDS, more)))
        assert held == {"actor": 0, "learner": 0, "replay": 0}
    server.objects["ConfigMap", "pong-state"]["data"] = {}
    server.scale("Deployment", "pong-actor", 50)
    assert numbers(server.upgrade(SHARDS))["actor"] == 50


@each_helm
def test_the_meter_pauses_a_release(server: ApiServer, binary: str) -> None:
    """The number belongs to `kubectl scale` or the meter: another one would be a conflict."""
    server.upgrade(SHARDS, binary=binary)
    server.scale("Deployment", "pong-actor", 50)
    paused = merged(SHARDS, PAUSED)
    rendered = server.upgrade(paused, binary=binary)
    assert numbers(rendered) == {"actor": 50, "learner": 1, "replay": 2}
    assert "--paused" in arguments_of_meter(rendered)
    # What the meter does then.
    server.objects["ConfigMap", "pong-state"]["data"] = {"paused": "value"}
    for component, kind in WORKLOADS.items():
        server.scale(kind, f"pong-{component}", 0)
    again = server.upgrade(merged(paused, {"pod": {"queueName": "q"}}), binary=binary)
    assert set(numbers(again).values()) == {0}
    # The meter brings back what it took.
    resumed = server.upgrade(SHARDS, binary=binary)
    assert set(numbers(resumed).values()) == {0}
    assert "--paused" not in arguments_of_meter(resumed)


@each_helm
def test_a_meter_that_has_left_comes_back_with_another_goal(server: ApiServer, binary: str) -> None:
    meter = {("Deployment", "pong-cost"), ("CronJob", "pong-last-resort")}

    def made(more: dict[str, Any]) -> bool:
        found = {
            (x["kind"], x["metadata"]["name"]) for x in server.upgrade(more, binary=binary).all
        }
        assert len(meter & found) in (0, 2)
        return meter <= found

    assert made({})
    goal = next(
        text.removeprefix("--goal=")
        for text in arguments_of_meter(server.upgrade(binary=binary))
        if text.startswith("--goal=")
    )
    data = {"finished": "stop.updates: 9 of 9", "goal": goal, "resumeReplicas": '{"actor": 2}'}
    server.objects["ConfigMap", "pong-state"]["data"] = data
    assert made({})
    data["meterLeftAt"] = "2026-08-03T10:00:00+00:00"
    assert not made({})
    assert not made({"extraLabels": {"team": "x"}})
    for more in (
        {"experiment": {"stop": {"updates": 10}}},
        {"learner": {"run": "second"}},
        {"cost": {"ttlSecondsAfterFinished": 0}},
        PAUSED,
        EXTERNAL,
    ):
        assert made(more), more
    del data["finished"]
    assert made({})


@pytest.mark.slow
def test_a_release_that_begins_paused(server: ApiServer) -> None:
    """Nothing was there whose number the meter could bring back."""
    for _ in range(2):
        assert set(numbers(server.upgrade(merged(SHARDS, PAUSED))).values()) == {0}
        server.objects["ConfigMap", "pong-state"]["data"] = {"paused": "value"}
    assert numbers(server.upgrade(SHARDS)) == {"actor": 2, "learner": 1, "replay": 2}


@pytest.mark.slow
@each_helm
def test_without_a_meter_the_chart_pauses(server: ApiServer, binary: str) -> None:
    base = merged(SHARDS, NO_METER)
    server.upgrade(base, binary=binary)
    server.scale("Deployment", "pong-actor", 50)
    for _ in range(2):
        paused = server.upgrade(merged(base, PAUSED), binary=binary)
        assert set(numbers(paused).values()) == {0}
    assert numbers(server.upgrade(base, binary=binary)) == {"actor": 50, "learner": 1, "replay": 2}
    annotations = server.objects["Deployment", "pong-actor"]["metadata"]["annotations"]
    assert annotations == {"seedbed.dev/replicas": "2"}, "no trace of the pause"
    assert "cost.enabled" in refused(merged(merged(base, PAUSED), EXTERNAL))


@pytest.mark.slow
@each_helm
@pytest.mark.parametrize("switch", [KEDA, METER, EXTERNAL], ids=["keda", "meter", "external"])
def test_a_number_that_helm_had_stays_when_another_takes_over(
    server: ApiServer, binary: str, switch: dict[str, Any]
) -> None:
    """A field that disappears from a manifest goes back to the API's default, 1."""
    server.upgrade(binary=binary)
    for number in (50, 60):
        server.scale("Deployment", "pong-actor", number)
        assert numbers(server.upgrade(switch, binary=binary))["actor"] == number
    # In a release that began with it the field was never there.
    server.objects.clear()
    for _ in range(2):
        assert numbers(server.upgrade(switch, binary=binary))["actor"] is None


@pytest.mark.slow
def test_external_numbers_are_nowhere_in_what_is_rendered(server: ApiServer) -> None:
    external = merged(SHARDS, EXTERNAL)
    first = server.upgrade(external)
    assert numbers(first) == {"actor": None, "learner": None, "replay": None}
    assert not [x for x in first.all if "seedbed.dev/replicas" in str(x["metadata"])]
    # After a scale, the end and a resumption it is the same text, with a cluster or without.
    for actors, data in ((50, {}), (0, {"finished": "x"}), (0, {"paused": "value"}), (50, {})):
        server.scale("Deployment", "pong-actor", actors)
        server.objects["ConfigMap", "pong-state"]["data"] = data
        assert server.upgrade(external).all == first.all == render(external).all


def test_numbers_that_are_null_are_refused() -> None:
    for role in ("actor", "learner"):
        assert f"{role}.replicas is null" in refused({role: {"replicas": None}})
