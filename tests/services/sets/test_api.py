"""What the controller of a set reads from the objects of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import config

from seedbed.services.sets import api
from seedbed.services.sets.api import SetApi
from seedbed.services.sets.book import Entry
from seedbed.services.sets.losses import note_losses
from tests.support.api_server import ApiServer, api_server

MADE = "2026-03-01T09:30:00Z"
NOBODY = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available."
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": MADE}
RUNNING = {"state": {"running": {"startedAt": MADE}}, "lastState": {}, "ready": True}
KILLED = {"exitCode": 137, "reason": "Error", "startedAt": MADE, "finishedAt": MADE}
ENDED = {"state": {"terminated": KILLED}, "lastState": {}, "ready": False}


def container(name: str, restarts: int = 0, state: Any = None) -> dict[str, Any]:
    return {"name": name, "image": "r/seedbed:0.2.0", "imageID": "r/seedbed@sha256:0",
            "restartCount": restarts, "started": True, **(state or RUNNING)}  # fmt: skip


def disrupted(reason: str, message: str, status: str = "True") -> dict[str, Any]:
    return {"type": "DisruptionTarget", "status": status, "reason": reason, "message": message,
            "lastProbeTime": None, "lastTransitionTime": MADE}  # fmt: skip


def pod(
    *conditions: dict[str, Any],
    number: int = 0,
    phase: str = "Running",
    containers: list[dict[str, Any]] | None = None,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A learner's pod in JSON, as the API server writes it: what is empty is left out."""
    found = [container("learner")] if containers is None else containers
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"lab-a-learner-{number}", "namespace": "rl", "creationTimestamp": MADE,
            "uid": f"0c8f-{number}", "resourceVersion": "4711", "generateName": "lab-a-learner-",
            "labels": {"app.kubernetes.io/name": "seedbed", "app.kubernetes.io/instance": "lab-a",
                       "app.kubernetes.io/component": "learner", "seedbed.dev/set": "lab",
                       "apps.kubernetes.io/pod-index": str(number)},
        },
        "spec": {"containers": [{"name": one["name"]} for one in found], **(spec or {})},
        "status": {"phase": phase, "qosClass": "Burstable", "conditions": [SCHEDULED, *conditions],
                   **({"containerStatuses": found} if found else {}), **status},
    }  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server() as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "load_credentials", lambda: config.load_kube_config(str(found.file)))
        yield found


def serve(server: ApiServer, *pods: dict[str, Any]) -> SetApi:
    server.objects = {("Pod", one["metadata"]["name"]): one for one in pods}
    return SetApi("lab", "rl")


TAKEN = {
    "a drain": pod(disrupted("EvictionByEvictionAPI", "Eviction API: evicting")),
    "a taint": pod(disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute")),
    "a pod of a higher priority": pod(
        disrupted("PreemptionByScheduler", "default-scheduler: preempting to accommodate a pod")
    ),
    "a node that is gone": pod(
        disrupted("DeletionByPodGC", "PodGC: node no longer exists"), phase="Failed"
    ),
    "a node without memory": pod(
        disrupted("TerminationByKubelet", "The node was low on resource: memory."),
        phase="Failed", reason="Evicted", containers=[container("learner", 0, ENDED)],
        message="The node was low on resource: memory.",
    ),
    "a Spot node that is reclaimed": pod(
        disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node "
                  "shutdown."), phase="Failed", reason="Terminated", containers=[],
    ),
}  # fmt: skip
OWN = {
    "nothing": (pod(), 0),
    "two restarts": (pod(containers=[container("learner", 2)]), 2),
    "those of a sidecar and of an init container": (
        pod(containers=[container("istio-proxy", 4), container("learner")],
            initContainerStatuses=[container("settings", 3, ENDED)]), 0,
    ),
    "an end that the kubelet does not mend": (
        pod(phase="Failed", containers=[container("learner", 0, ENDED)]), 1,
    ),
    "a preemption that was given up": (
        pod(disrupted("PreemptionByScheduler", "preempting", "False")), 0,
    ),
    "no node yet": (pod(phase="Pending", containers=[]), 0),
}  # fmt: skip


@pytest.mark.parametrize("cause", TAKEN)
def test_a_pod_that_others_take_is_preempted_and_has_not_failed(
    server: ApiServer, cause: str
) -> None:
    entry = Entry(phase="awake")
    assert note_losses(entry, serve(server, TAKEN[cause]).pods())
    assert (entry.preempted, entry.restarts) == (["0c8f-0"], {})


@pytest.mark.parametrize("cause", OWN)
def test_a_failure_of_its_own_is_no_preemption(server: ApiServer, cause: str) -> None:
    found, failures = OWN[cause]
    entry = Entry(phase="awake")
    note_losses(entry, serve(server, found).pods())
    assert (entry.preempted, sum(entry.restarts.values())) == ([], failures)


def test_a_pod_that_has_failed_before_others_take_it_counts_in_both(server: ApiServer) -> None:
    taken = disrupted("EvictionByEvictionAPI", "Eviction API: evicting")
    calls = serve(server, pod(taken, phase="Failed", containers=[container("learner", 2, ENDED)]))
    entry = Entry(phase="awake")
    note_losses(entry, calls.pods())
    assert (entry.preempted, entry.restarts) == (["0c8f-0"], {"0c8f-0": 2})
    assert not note_losses(entry, calls.pods()), "a second look counts nothing twice"


def test_a_pod_is_read_by_its_labels_and_one_that_is_done_is_left_out(server: ApiServer) -> None:
    calls = serve(server, pod(), pod(number=1, phase="Succeeded"), pod(number=2, phase="Failed"))
    assert [(one.name, one.has_failed) for one in calls.pods()] == [
        ("lab-a-learner-0", False), ("lab-a-learner-2", True),
    ]  # fmt: skip
    one = calls.pods()[0]
    assert (one.run, one.component, one.uid, one.created) == ("lab-a", "learner", "0c8f-0", MADE)


def test_a_claim_without_a_volume_is_one_that_never_had_one(server: ApiServer) -> None:
    labels = {"seedbed.dev/set": "lab", "app.kubernetes.io/instance": "lab-a"}
    phases = {"runs-0": "Pending", "runs-1": "Bound", "runs-2": "Lost"}

    def claim(name: str, phase: str, **others: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "labels": labels | others}, "status": {"phase": phase}
        }  # fmt: skip

    foreign = claim("theirs", "Pending", **{"app.kubernetes.io/instance": "lab-b"})
    items = [*(claim(*one) for one in phases.items()), foreign]
    server.objects = {("PersistentVolumeClaim", one["metadata"]["name"]): one for one in items}
    calls = SetApi("lab", "rl")
    assert calls.claims("lab-a") == [*phases]
    assert calls.claims("lab-a", without_volume=True) == ["runs-0"]


@pytest.mark.parametrize(
    ("spec", "reason", "message", "why"),
    [
        ({}, "Unschedulable", NOBODY, NOBODY),
        # Kueue: the scheduler's own message names neither the queue nor the gate.
        (
            {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
            "SchedulingGated",
            "Scheduling is blocked due to non-empty scheduling gates",
            "waits in a queue: kueue.x-k8s.io/admission",
        ),
    ],
)
def test_a_pod_without_a_node_has_a_reason(
    server: ApiServer, spec: dict[str, Any], reason: str, message: str, why: str
) -> None:
    waits = pod(number=0, phase="Pending", containers=[], spec=spec)
    waits["status"]["conditions"] = [
        {**SCHEDULED, "status": "False", "reason": reason, "message": message}
    ]
    not_seen = pod(number=1, phase="Pending", containers=[])
    del not_seen["status"]["conditions"]
    there = pod(number=2)
    assert [one.waits for one in serve(server, waits, not_seen, there).pods()] == [why, "", ""]
