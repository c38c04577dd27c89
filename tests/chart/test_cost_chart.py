"""What the chart tells the cost meter, and what the meter may do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chart import render


def goal(values: dict[str, Any] | None = None) -> list[str]:
    arguments = render(values).pods()["pong-cost"]["spec"]["containers"][0]["args"]
    return [text for text in arguments if text.startswith("--goal=")]


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        ({}, {"--budget=0", "--run=pong"}),
        ({"learner": {"run": "b"}}, {"--run=b"}),
        ({"experiment": {"stop": {"idle_s": 60, "dollars": 2.5}}}, {"--budget=2.5", "--idle-s=60"}),
    ],
)  # fmt: skip
def test_the_meter_knows_what_ends_the_release(values: dict[str, Any], arguments: set[str]) -> None:
    said = render(values).pods()["pong-cost"]["spec"]["containers"][0]["args"]
    assert arguments <= set(said)


def test_other_stop_conditions_or_another_run_are_another_goal() -> None:
    assert goal() != goal({"experiment": {"stop": {"updates": 3}}})
    assert goal() != goal({"learner": {"run": "b"}})
    assert goal() == goal({"experiment": {"stop": {"idle_s": 30}, "logging": {"interval_s": 3}}})


def test_the_meter_may_watch_pods() -> None:
    rules = render().one("Role", "pong-cost")["rules"]
    (pods,) = (rule for rule in rules if rule["resources"] == ["pods"])
    assert pods["verbs"] == ["list", "watch"]


def test_the_last_resort_is_there_on_demand_and_knows_what_the_meter_knows() -> None:
    assert not render().of("CronJob")
    rendered = render({"cost": {"lastResort": {"enabled": True}}})
    (job,) = rendered.of("CronJob")
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "pong-cost"
    (container,) = spec["containers"]
    meter = rendered.pods()["pong-cost"]["spec"]["containers"][0]["args"]
    known = [text for text in container["args"] if text != "--last-resort"]
    assert "--last-resort" in container["args"]
    assert set(known) <= set(meter)


def test_a_node_without_a_free_core_has_five_minutes_to_start_the_meter_and_an_actor() -> None:
    """Liveness is not asked before: a meter that starts slowly would be killed for ever."""
    pods = render().pods()
    for component in ("cost", "actor"):
        (container,) = pods[f"pong-{component}"]["spec"]["containers"]
        probe = container["startupProbe"]
        assert probe["httpGet"] == container["livenessProbe"]["httpGet"]
        assert probe["periodSeconds"] * probe["failureThreshold"] == 300
