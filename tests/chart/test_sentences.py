"""What a value should have been, in a sentence: sizes, whole numbers, requests, agents, icons."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chart import ROOT, SET_VALUES, refused, render, run, values_of


def requests(role: str, **amounts: Any) -> dict[str, Any]:
    return {role: {"resources": amounts}}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"learner": {"persistence": {"size": "1GiB"}}},
            'learner.persistence.size "1GiB" is no amount: say a number, alone or with one of k, '
            "M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, such as 10Gi",
        ),
        (requests("actor", limits={"memory": "2GB"}), 'actor.resources.limits.memory "2GB" is no'),
        (requests("cost", requests={"cpu": "two"}), 'cost.resources.requests.cpu "two" is no'),
        ({"learner": {"pod": {"shmSize": "1gi"}}}, 'learner.pod.shmSize "1gi" is no amount'),
        (
            requests("learner", requests={"memory": "9Gi"}),
            "learner.resources.requests.memory is 9Gi, and its limit is 4Gi: no pod may ask for "
            "more than its limit; raise learner.resources.limits.memory, or ask for less",
        ),
        (
            {"learner": {"replicas": 2.5}},
            "learner.replicas is 2.5, which is no whole number from 1 up",
        ),
        ({"learner": {"replicas": 0}}, "learner.replicas is 0, which is no whole number"),
        ({"actor": {"replicas": -1}}, "actor.replicas is -1, which is no whole number from 0 up"),
        ({"actor": {"replicas": "external"}}, "replicas: external leaves the field out"),
        ({"experiment": {"stop": {"dollars": "five"}}}, "'/experiment/stop/dollars': got string"),
    ],
)
def test_a_value_that_is_none_is_refused(values: dict[str, Any], sentence: str) -> None:
    assert sentence in refused(values)


@pytest.mark.parametrize("size", ["10m", "0", 1024])
def test_a_volume_of_hardly_a_byte_is_refused(size: Any) -> None:
    assert "less than 1Mi is hardly meant" in refused({"replay": {"persistence": {"size": size}}})


@pytest.mark.parametrize("size", ["500M", "1.5Gi", "1e9", 1e9, ".5Gi"])
def test_amounts_of_the_api_server_are_taken(size: Any) -> None:
    assert render({"replay": {"persistence": {"size": size}}}).all


@pytest.mark.parametrize(
    ("agent", "more", "sentence"),
    [
        ("r2d2", {}, "say replay.shards: 4"),
        ("dqn", {}, "say replay.shards: 4"),
        (
            "r2d2",
            {"learner": {"replay": {"storage": "remote"}}},
            "say how many shards there are to be (replay.shards: 2)",
        ),
        (
            "a2c",
            {},
            "batch_size sums to 32; make them equal: say experiment.learner.batch_size: 128",
        ),
    ],
)  # fmt: skip
def test_pods_that_do_not_fit_an_agent_are_refused(
    agent: str, more: dict[str, Any], sentence: str
) -> None:
    said = refused({"experiment": {"agent": agent, **more}})
    assert sentence in said


@pytest.mark.parametrize("chart", ["seedbed", "seedbed-set", "seedbed-platform"])
def test_lint_has_nothing_to_say(chart: str) -> None:
    # A set without its files is refused.
    values = values_of(SET_VALUES) if chart == "seedbed-set" else None
    answer = run("lint", "--strict", str(ROOT / "helm" / chart), values=values)
    assert answer.returncode == 0, answer.stdout
    assert "[" not in answer.stdout
