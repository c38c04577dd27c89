"""Pods and nodes as the API server gives them, to what they occupy."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client import ApiClient

from seedbed.services.cost.usage import occupies_node, usage_of


def thing(kind: str, json_object: dict[str, Any]) -> Any:
    """As the client makes it of an answer."""
    return ApiClient()._ApiClient__deserialize(json_object, kind)  # type: ignore[attr-defined]


def pod(containers: list[dict[str, Any]], **spec: Any) -> Any:
    return thing(
        "V1Pod",
        {
            "metadata": {"name": "p", "labels": {"app.kubernetes.io/component": "actor"}},
            "spec": {"nodeName": "n", "containers": containers, **spec},
            "status": {"phase": "Running"},
        },
    )


def container(requests: Any = None, limits: Any = None) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests, "limits": limits}}


def test_requests_of_all_containers_and_limits_where_there_are_none() -> None:
    found = usage_of(
        pod([container({"cpu": "100m", "memory": "1Gi"}), container(None, {"cpu": "2"})]), None
    )
    assert (found.component, found.cpus, found.memory_gib) == ("actor", 2.1, 1.0)
    assert (found.spot, found.family) == (None, "")


def test_an_init_container_counts_where_it_asks_for_more() -> None:
    init = [container({"cpu": "3", "memory": "100Mi"})]
    found = usage_of(pod([container({"cpu": "1", "memory": "1Gi"})], initContainers=init), None)
    assert (found.cpus, found.memory_gib) == (3.0, 1.0)


def test_sidecars_run_beside_the_containers() -> None:
    """GCS FUSE and Istio are init containers that go on."""
    sidecar = {**container({"cpu": "250m"}), "restartPolicy": "Always"}
    init = container({"cpu": "2100m"})
    own = [container({"cpu": "2", "memory": "1Gi"})]
    assert usage_of(pod(own, initContainers=[sidecar]), None).cpus == 2.25
    assert usage_of(pod(own, initContainers=[sidecar, init]), None).cpus == 2.35
    assert usage_of(pod(own, initContainers=[init, sidecar]), None).cpus == 2.25


def test_resources_of_the_pod_go_before_those_of_its_containers() -> None:
    whole = {"requests": {"cpu": "3"}, "limits": {"cpu": "5", "memory": "6Gi"}}
    found = usage_of(pod([container({"cpu": "1", "memory": "1Gi"})], resources=whole), None)
    assert (found.cpus, found.memory_gib) == (3.0, 6.0)


def test_the_overhead_of_a_sandbox_is_occupied() -> None:
    over = {"cpu": "250m", "memory": "512Mi"}
    found = usage_of(pod([container({"cpu": "1", "memory": "1Gi"})], overhead=over), None)
    assert (found.cpus, found.memory_gib) == (1.25, 1.5)


@pytest.mark.parametrize(
    ("requests", "labels", "parts"),
    [
        ({"nvidia.com/gpu": "1"}, {}, 1),
        ({"nvidia.com/gpu": "1"}, {"gke-max-shared-clients-per-gpu": "4"}, 4),
        ({"nvidia.com/gpu": "1"}, {"gke-gpu-partition-size": "1g.5gb"}, 7),
        ({"nvidia.com/gpu": "1"}, {"gke-gpu-partition-size": "3g.40gb"}, 2),
        ({"nvidia.com/gpu": "1"}, {"gke-gpu-partition-size": "1g.20gb"}, 4),
        ({"nvidia.com/mig-2g.10gb": "1"}, {}, 3),
        (
            {"nvidia.com/gpu": "1"},
            {"gke-gpu-partition-size": "1g.5gb", "gke-max-shared-clients-per-gpu": "2"},
            14,
        ),
    ],
)
def test_parts_of_a_gpu(requests: Any, labels: Any, parts: int) -> None:
    selector = {f"cloud.google.com/{name}": value for name, value in labels.items()}
    found = usage_of(pod([container(requests)], nodeSelector=selector), None)
    assert (found.accelerators, found.parts) == (1.0, parts)


def test_a_resource_claim_is_a_device() -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    assert usage_of(pod([container()], resourceClaims=claims), None).accelerators == 1.0


@pytest.mark.parametrize(
    ("label", "spot"),
    [
        ({"cloud.google.com/gke-provisioning": "spot"}, True),
        ({"cloud.google.com/gke-provisioning": "preemptible"}, True),
        ({"cloud.google.com/gke-provisioning": "standard"}, False),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, True),
    ],
)
def test_the_labels_of_spot(label: Any, spot: bool) -> None:
    node = thing("V1Node", {"metadata": {"name": "n", "labels": label}})
    assert usage_of(pod([container()]), node).spot is spot


def test_autopilot_bills_by_request_whatever_the_machine() -> None:
    def family(node: str, selector: Any = None, machine: str = "") -> str:
        labels = {"node.kubernetes.io/instance-type": machine} if machine else {}
        place = thing("V1Node", {"metadata": {"name": node, "labels": labels}})
        of = pod([container()], nodeName=node, nodeSelector=selector)
        return usage_of(of, place if machine else None).family

    assert family("gk3-pool-1", machine="e2-standard-4") == "ek"
    assert family("gk3-pool-1") == "ek", "the node's name says it without the right to read nodes"
    assert family("gke-pool-1", machine="ek-standard-8") == "ek"
    assert family("gke-pool-1", machine="e2-standard-4") == "e2"
    balanced = {"cloud.google.com/compute-class": "Balanced"}
    assert family("gk3-pool-1", balanced, "n2-standard-4") == "autopilot-balanced", "no price"
    own = {"cloud.google.com/compute-class": "spot-first"}
    assert family("gk3-pool-1", own, "n2d-standard-4") == "n2d", "a class of one's own: machines"


def test_the_node_says_family_tier_and_accelerator() -> None:
    gpu = pod([container(None, {"nvidia.com/gpu": "2"})])
    found = usage_of(
        gpu,
        thing(
            "V1Node",
            {
                "metadata": {
                    "name": "n",
                    "labels": {
                        "cloud.google.com/gke-spot": "true",
                        "cloud.google.com/gke-accelerator": "nvidia-l4",
                        "node.kubernetes.io/instance-type": "g2-standard-8",
                    },
                }
            },
        ),
    )
    assert (found.accelerators, found.accelerator, found.is_tpu) == (2.0, "nvidia-l4", False)
    assert (found.family, found.spot) == ("g2", True)
    plain = thing("V1Node", {"metadata": {"name": "n", "labels": {}}})
    assert usage_of(gpu, plain).spot is False, "a node that may be read and does not say so"


def test_without_nodes_the_pods_own_selector_says_it() -> None:
    selector = {
        "cloud.google.com/gke-spot": "true",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
    }
    found = usage_of(pod([container(None, {"google.com/tpu": "4"})], nodeSelector=selector), None)
    assert (found.spot, found.accelerator, found.is_tpu) == (True, "tpu-v6e-slice", True)
    assert found.accelerators == 4


def test_only_what_is_on_a_node_occupies_it() -> None:
    assert occupies_node(pod([container()]))
    assert not occupies_node(pod([container()], nodeName=None))
    ended = pod([container()])
    ended.status.phase = "Succeeded"
    assert not occupies_node(ended)
