"""Pods and nodes as the API server gives them, to what they occupy."""

from __future__ import annotations

from typing import Any

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
