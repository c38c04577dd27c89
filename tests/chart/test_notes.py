"""NOTES: what they say of a release that is finished, paused, or one of several learners."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.api_server import ApiServer, api_server
from tests.support.chart import CHART, run


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with api_server() as found:
        yield found


def notes(values: dict[str, Any] | None = None) -> str:
    answer = run("install", "pong", str(CHART), "-n", "rl", "--dry-run=client", values=values or {})
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.partition("\nNOTES:\n")[2]


def notes_of_state(server: ApiServer, state: dict[str, str], values: dict[str, Any]) -> str:
    server.objects["ConfigMap", "pong-state"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "pong-state",
            "namespace": "rl",
            "labels": {"app.kubernetes.io/managed-by": "Helm"},
            "annotations": {
                "meta.helm.sh/release-name": "pong",
                "meta.helm.sh/release-namespace": "rl",
            },
        },
        "data": state,
    }
    answer = server.helm(
        "install", "pong", str(CHART), "-n", "rl", "--dry-run=server",
        "--disable-openapi-validation", values=values,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.partition("\nNOTES:\n")[2]


@pytest.mark.slow
def test_a_finished_release(server: ApiServer) -> None:
    said = notes_of_state(server, {"finished": "stop.updates: 9 of 9", "dollars": "3"}, {})
    assert said.startswith("FINISHED: stop.updates: 9 of 9")
    assert """-p '{"data":{"finished":null}}\'""" in said
    # The meter brings a release with another goal back, and has not done so yet.
    other = {"finished": "stop.updates: 9 of 9", "dollars": "3", "goal": "another"}
    assert "FINISHED" not in notes_of_state(server, other, {})


@pytest.mark.slow
def test_a_paused_release(server: ApiServer) -> None:
    said = notes_of_state(server, {"paused": "stop.idle_s: 900 of 600"}, {})
    assert said.startswith("PAUSED: stop.idle_s: 900 of 600.")
    assert "seedbed resume pong -n " in said
    assert """-p '{"data":{"paused":null}}\'""" in said
    by_value = notes({"paused": True})
    assert by_value.startswith("PAUSED: paused is true")
    assert "paused: false" in by_value
    # The meter has not read the new value yet.
    assert "PAUSED" not in notes_of_state(server, {"paused": "value"}, {"paused": False})


def test_the_folder_of_a_run_on_a_bucket() -> None:
    bucket: dict[str, Any] = {"persistence": {"type": "gcsfuse", "bucket": "b"}}
    for learner, folder in (
        (bucket, "/runs/pong\n"),
        ({**bucket, "replicas": 2}, "/runs/pong/learner-0\n"),
        ({"replicas": 2}, "/runs/pong\n"),
    ):
        assert f"seedbed status {folder}" in notes({"learner": learner})


def test_numbers_that_are_left_out() -> None:
    values = {"replicas": "external"}
    assert "leaves the number out" in notes(values)
    assert "nil" not in notes(values)


def test_a_meter_that_may_patch_whole_workloads_is_told_of_without_the_policy(
    server: ApiServer,
) -> None:
    warning = "The cost meter may patch the learner's whole StatefulSet"
    queued = {"pod": {"queueName": "q"}}
    assert warning in notes_of_state(server, {}, queued)
    assert "may patch" not in notes_of_state(server, {}, {})
    server.objects["ConfigMap", "seedbed-platform"] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "seedbed-platform", "namespace": "rl"},
        "data": {"meterPolicy": "true"},
    }
    assert "may patch" not in notes_of_state(server, {}, queued)
