"""What the chart tells the cost meter, and what the meter may do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chart import NO_METER, SHARDS, render


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


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"fullnameOverride": "abc"},
        {"cost": {"pod": {"serviceAccount": {"create": False, "name": "own"}}}},
        {"learner": {"run": "second"}, "paused": True, "experiment": {"stop": {"dollars": 3}}},
        {"fullnameOverride": "n" * 35},
        {"set": "rates"},
    ],
)
def test_the_last_resort_has_all_arguments_and_rights_of_the_meter(values: dict[str, Any]) -> None:
    rendered = render(values)
    (job,) = rendered.of("CronJob")
    assert len(job["metadata"]["name"]) <= 52
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (name,) = (name for name in rendered.pods() if name.endswith("-cost"))
    meter = rendered.pods()[name]["spec"]
    assert spec["serviceAccountName"] == meter["serviceAccountName"]
    (container,), (other,) = spec["containers"], meter["containers"]
    own = (
        "--learner=",
        "--settings=",
        "--port=",
        "--ttl-s=",
        "--auth-secret=",
        "--owns=",
        "--insecure",
    )
    shared = [text for text in other["args"] if not text.startswith(own)]
    assert container["args"] == [*shared, "--last-resort"]
    assert container["image"] == other["image"]
    labels = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/component"] == "last-resort", "no meter that is not ready"
    (state,) = (
        one for one in rendered.of("ConfigMap") if one["metadata"]["name"].endswith("-state")
    )
    assert f"--release={state['metadata']['name'].removesuffix('-state')}" in container["args"]


def test_without_a_meter_there_is_no_last_resort() -> None:
    assert not render(NO_METER).of("CronJob")


def test_a_node_without_a_free_core_has_five_minutes_to_start_the_meter() -> None:
    """Liveness is not asked before: a meter that starts slowly would be killed for ever."""
    (container,) = render().pods()["pong-cost"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert probe["httpGet"] == container["livenessProbe"]["httpGet"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 300


def test_no_first_probe_comes_before_a_process_can_have_started() -> None:
    """Each one that fails is an event, and there is one for each pod."""
    for name, pod in render(SHARDS).pods().items():
        for container in pod["spec"]["containers"]:
            if probe := container.get("startupProbe"):
                assert probe["initialDelaySeconds"] >= 3, name


def test_no_probe_ends_an_actor() -> None:
    """Its own watchdog does: a probe kills one that makes its environments on a busy node."""
    rendered = render()
    (container,) = rendered.pods()["pong-actor"]["spec"]["containers"]
    assert not [key for key in container if key.endswith("Probe")]
    (deployment,) = (
        one for one in rendered.of("Deployment") if one["metadata"]["name"] == "pong-actor"
    )
    assert deployment["spec"]["minReadySeconds"]
