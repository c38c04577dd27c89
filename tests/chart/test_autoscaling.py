"""KEDA and Kueue: what they are given, and what the query of KEDA answers."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import ApiServer, api_server
from tests.support.chart import SHARDS, merged, refused, render

KEDA: dict[str, Any] = {"actor": {"autoscaling": {"type": "keda", "minReplicas": 2}}}

ACTORS = {f'up{{namespace="rl",pod="pong-actor-5d8f7c-abcd{n}"}}': 1 for n in "23456"}
LEARNER = '{namespace="rl",pod="pong-learner-0"}'
BUSY = {
    'seedbed_busy_fraction{namespace="rl",pod="pong-learner-0",thread="inference"}': 0.35,
    f"seedbed_run_finished{LEARNER}": 0,
}
METER = '{namespace="rl",pod="pong-cost-5d8f7c-abcde"}'
GOES_ON = {f"seedbed_cost_paused{METER}": 0, f"seedbed_experiment_finished{METER}": 0}
# Releases of other names in the namespace, and one of the same name elsewhere.
OTHERS = {
    'up{namespace="rl",pod="pong-actor-learner-0"}': 1,
    'up{namespace="rl",pod="pong-actor-actor-5d8f7c-abcde"}': 1,
    'up{namespace="else",pod="pong-actor-5d8f7c-abcde"}': 1,
    'seedbed_run_finished{namespace="rl",pod="pong-learner-learner-0"}': 1,
    'seedbed_cost_paused{namespace="rl",pod="pong-cost-cost-5d8f7c-abcde"}': 1,
}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def scaled(values: dict[str, Any]) -> dict[str, Any]:
    (item,) = render(values).of("ScaledObject")
    spec: dict[str, Any] = item["spec"]
    return spec


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_what_the_query_answers(tmp_path: Path) -> None:
    """None is an error for KEDA, after which the number stays."""
    cases: list[tuple[dict[str, float], float | None]] = [
        ({**ACTORS, **BUSY, **GOES_ON}, 5 * 0.7 / 0.35),
        ({**ACTORS, **BUSY, **GOES_ON, **OTHERS}, 5 * 0.7 / 0.35),
        ({**BUSY, **GOES_ON}, 1 * 0.7 / 0.35),
        ({**ACTORS, **GOES_ON}, 5),  # the learner restarts
        (ACTORS, 5),
        (GOES_ON, None),  # a gap
        ({}, None),
        ({**ACTORS, **BUSY, f"seedbed_run_finished{LEARNER}": 1}, 0),
        ({**ACTORS, **BUSY, **GOES_ON, f"seedbed_cost_paused{METER}": 1}, 0),
        ({**ACTORS, f"seedbed_experiment_finished{METER}": 1}, 0),
        ({f"seedbed_cost_paused{METER}": 1}, 0),
    ]
    query = scaled(KEDA)["triggers"][0]["metadata"]["query"]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": []}))
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": k, "values": f"{v}x5"} for k, v in series.items()],
            "promql_expr_test": [
                {"expr": query, "eval_time": "3m", "exp_samples": _samples(answer)}
            ],
        }
        for series, answer in cases
    ]
    (tmp_path / "tests.yaml").write_text(json.dumps({"rule_files": ["rules.yaml"], "tests": tests}))
    said = subprocess.run(
        ["promtool", "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stdout + said.stderr


def _samples(answer: float | None) -> list[dict[str, Any]]:
    return [] if answer is None else [{"labels": "{}", "value": answer}]


def test_a_gap_of_prometheus_changes_no_number() -> None:
    spec = scaled(KEDA)
    assert (spec["idleReplicaCount"], spec["minReplicaCount"]) == (0, 2)
    assert spec["fallback"] == {
        "failureThreshold": 3,
        "replicas": 2,
        "behavior": "currentReplicas",
    }
    assert spec["cooldownPeriod"] == 300
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert "authenticationRef" not in trigger
    assert "advanced" not in spec


def test_keda_asks_a_prometheus_that_wants_credentials() -> None:
    more = {
        "authenticationRef": {"name": "gmp", "kind": "ClusterTriggerAuthentication"},
        "authModes": "bearer",
    }
    (trigger,) = scaled(merged(KEDA, {"actor": {"autoscaling": more}}))["triggers"]
    assert trigger["authenticationRef"] == more["authenticationRef"]
    assert trigger["metadata"]["authModes"] == "bearer"


def test_the_pace_of_scaling() -> None:
    slow = {"scaleDown": {"stabilizationWindowSeconds": 900}}
    config = scaled({"actor": {"autoscaling": {"type": "keda", "behavior": slow}}})["advanced"]
    assert config["horizontalPodAutoscalerConfig"]["behavior"] == slow


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"metrics": {"type": "none"}}, ["metrics.type is none", "keda"]),
        ({"actor": {"autoscaling": {"minReplicas": 9, "maxReplicas": 3}}}, ["9", "3"]),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Any], words: list[str]) -> None:
    said = refused(merged(KEDA, values))
    for word in words:
        assert word in said


def test_queues_and_priorities_by_role() -> None:
    """A learner that waits behind its own actors pays for them."""
    values: dict[str, Any] = {
        "pod": {"queueName": "research"},
        "learner": {"pod": {"queueName": "accelerators", "queuePriorityClass": "high"}},
    }
    rendered = render(values)
    for kind, name, queue, priority in (
        ("StatefulSet", "pong-learner", "accelerators", "high"),
        ("Deployment", "pong-actor", "research", None),
    ):
        labels = rendered.one(kind, name)["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == queue
        assert labels.get("kueue.x-k8s.io/priority-class") == priority
    alone = render({"learner": {"pod": {"queueName": "accelerators"}}})
    labels = alone.one("Deployment", "pong-actor")["metadata"]["labels"]
    assert "kueue.x-k8s.io/queue-name" not in labels
    # A label that the values give themselves is there once, too.
    both = render(
        {"extraLabels": {"kueue.x-k8s.io/queue-name": "all"}, "pod": {"queueName": "research"}}
    )
    labels = both.one("Deployment", "pong-actor")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "research"


@pytest.mark.slow
def test_what_kueue_refuses_is_refused_with_the_way_out(server: ApiServer) -> None:
    three = merged(SHARDS, {"replay": {"shards": 3}})
    queued = merged(SHARDS, {"pod": {"queueName": "research"}})
    server.upgrade(SHARDS)
    server.upgrade(queued)  # without Kueue it is a label
    server.add_group("kueue.x-k8s.io/v1beta1", ["LocalQueue"])
    for values, words in (
        (
            merged(queued, {"replay": {"pod": {"queueName": "other"}}}),
            ["pong-replay", "research", "other"],
        ),
        (merged(queued, {"replay": {"pod": {"queuePriorityClass": "high"}}}), ["priority", "high"]),
        (merged(three, {"pod": {"queueName": "research"}}), ["2", "3", "paused"]),
    ):
        answer = server.template(values)
        assert answer.returncode != 0
        for word in words:
            assert word in answer.stderr
    more = merged(three, {"pod": {"queueName": "research"}})
    server.upgrade(merged(more, {"paused": True}))  # the way that it names
    # As the meter does, which sees the numbers.
    for name, number in (("replay", 2), ("learner", 1)):
        assert server.objects["StatefulSet", f"pong-{name}"]["spec"]["replicas"] == number
        server.scale("StatefulSet", f"pong-{name}", 0)
    server.objects["ConfigMap", "pong-state"]["data"] = {"paused": "value"}
    server.upgrade(more)
