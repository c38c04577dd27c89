"""Requests of a pod and its place, read from the Kubernetes API's objects."""

from dataclasses import dataclass
from typing import Any

from kubernetes.utils import parse_quantity

COMPONENT = "app.kubernetes.io/component"
GPU, TPU = "nvidia.com/gpu", "google.com/tpu"
# On a node, or in a pod's nodeSelector.
SPOT_LABELS = {
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
}
ACCELERATOR_LABELS = ("cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator")
FAMILY_LABEL, TYPE_LABEL = "cloud.google.com/machine-family", "node.kubernetes.io/instance-type"


@dataclass(frozen=True)
class Usage:
    """The requests of one pod.

    Attributes:
        component: `learner`, `actor`, `replay` or `cost`.
        accelerator: Name of the accelerator; "" where neither node nor pod has one.
        family: Machine family; "" where neither node nor pod has one.
        spot: None where unknown.
    """

    component: str
    cpus: float
    memory_gib: float
    accelerators: float = 0.0
    is_tpu: bool = False
    accelerator: str = ""
    family: str = ""
    spot: bool | None = None


def occupies_node(pod: Any) -> bool:
    """Return whether a pod is on a node: from its binding until its containers have ended.

    Args:
        pod: A `V1Pod`.
    """
    return bool(pod.spec.node_name) and pod.status.phase not in ("Succeeded", "Failed")


def component_of(pod: Any) -> str:
    """Return a pod's role in the release.

    Args:
        pod: A `V1Pod`.
    """
    return str((pod.metadata.labels or {}).get(COMPONENT, "other"))


def exit_code_of(pod: Any) -> int | None:
    """Return the code of the newest end of a pod's own container, no sidecar; None before one.

    Args:
        pod: A `V1Pod`.
    """
    for status in pod.status.container_statuses or []:
        if status.name == component_of(pod):
            for state in (status.state, status.last_state):
                if state is not None and state.terminated is not None:
                    return int(state.terminated.exit_code)
    return None


def usage_of(pod: Any, node: Any | None) -> Usage:
    """Return a pod's requests.

    An init container runs before the others, so a pod occupies the larger of the two.

    Args:
        pod: A `V1Pod`.
        node: Its `V1Node`; None where nodes may not be read.
    """
    requested = dict.fromkeys(("cpu", "memory", GPU, TPU), 0.0)
    for container in pod.spec.containers:
        for name, amount in _requests(container).items():
            requested[name] += amount
    for container in pod.spec.init_containers or []:
        for name, amount in _requests(container).items():
            requested[name] = max(requested[name], amount)
    selector = pod.spec.node_selector or {}
    labels = (node.metadata.labels or {}) if node is not None else {}
    where = selector | labels
    accelerator = next((where[name] for name in ACCELERATOR_LABELS if name in where), "")
    family = where.get(FAMILY_LABEL) or where.get(TYPE_LABEL, "").partition("-")[0]
    spot: bool | None = any(where.get(name) == value for name, value in SPOT_LABELS.items())
    if node is None and not spot:
        spot = None
    return Usage(
        component=component_of(pod),
        cpus=requested["cpu"],
        memory_gib=requested["memory"] / 2**30,
        accelerators=requested[TPU] or requested[GPU],
        is_tpu=requested[TPU] > 0,
        accelerator=accelerator,
        family=family,
        spot=spot,
    )


def _requests(container: Any) -> dict[str, float]:
    """Return a container's requests; where there is none its limit counts, as for Kubernetes."""
    resources = container.resources
    limits = (resources.limits or {}) if resources else {}
    requests = (resources.requests or {}) if resources else {}
    merged = limits | requests
    return {
        name: float(parse_quantity(merged[name]))
        for name in ("cpu", "memory", GPU, TPU)
        if name in merged
    }
