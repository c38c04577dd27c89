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
    assert goal() == goal({"experiment": {"stop": {"idle_s": 3}, "logging": {"interval_s": 3}}})


def test_the_meter_may_watch_pods() -> None:
    rules = render().one("Role", "pong-cost")["rules"]
    (pods,) = (rule for rule in rules if rule["resources"] == ["pods"])
    assert pods["verbs"] == ["list", "watch"]
