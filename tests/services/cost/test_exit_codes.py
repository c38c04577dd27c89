"""Exit codes and wanted replicas, which alarms are made of."""

from __future__ import annotations

from typing import Any

from prometheus_client import generate_latest

from seedbed.services.cost.usage import exit_code_of
from tests.services.cost.test_meter import Scene
from tests.services.cost.test_usage import container, pod, thing


def ended(code: int, at: str = "2026-08-03T10:00:00Z") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": at}}


def with_containers(*statuses: dict[str, Any], name: str = "pong-learner-0") -> Any:
    made = pod([container({"cpu": "1"})])
    made.metadata.name = name
    made.metadata.labels["app.kubernetes.io/component"] = "learner"
    made.status.container_statuses = [
        thing("V1ContainerStatus", {"name": "learner", "image": "", "imageID": "", "ready": False,
                                    "restartCount": 1, **status})
        for status in statuses
    ]  # fmt: skip
    return made


def test_a_pod_has_the_exit_code_of_the_newest_end_of_its_own_container() -> None:
    assert exit_code_of(with_containers()) is None
    assert exit_code_of(with_containers({"state": {"running": {}}})) is None
    assert exit_code_of(with_containers({"lastState": ended(20)})) == 20
    # It has just ended again: `lastState` is the end before.
    assert exit_code_of(with_containers({"state": ended(42), "lastState": ended(20)})) == 42
    sidecar = {"name": "proxy", "lastState": ended(1, "2026-08-03T11:00:00Z")}
    assert exit_code_of(with_containers({"lastState": ended(137)}, sidecar)) == 137
    assert exit_code_of(with_containers({"state": {"running": {}}}, sidecar)) is None


def test_exit_codes_and_wanted_replicas_are_exported() -> None:
    scene = Scene()
    scene.cluster.items = [with_containers({"lastState": ended(20)})]
    scene.cluster.wanted = {"actor": 3, "learner": 1}
    scene.meter.reconcile()
    text = generate_latest(scene.meter.registry).decode()
    assert 'seedbed_exit_code{component="learner",pod="pong-learner-0"} 20.0' in text
    assert 'seedbed_cost_wanted_replicas{component="actor"} 3.0' in text
    # A new pod in its place has not ended yet.
    scene.cluster.items = [with_containers({"state": {"running": {}}})]
    scene.cluster.wanted = {"actor": 0, "learner": 0}
    scene.meter.reconcile()
    text = generate_latest(scene.meter.registry).decode()
    assert "seedbed_exit_code{" not in text
    assert 'seedbed_cost_wanted_replicas{component="learner"} 0.0' in text
