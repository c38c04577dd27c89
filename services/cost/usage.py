"""Requests of a pod and its place, read from the Kubernetes API's objects."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kubernetes.utils import parse_quantity

COMPONENT = "app.kubernetes.io/component"
GPU, TPU = "nvidia.com/gpu", "google.com/tpu"
MIG = "nvidia.com/mig-"
# On a node, or in a pod's nodeSelector.
SPOT_LABELS = {
    "cloud.google.com/gke-spot": ("true",),
    "cloud.google.com/gke-preemptible": ("true",),
    "cloud.google.com/gke-provisioning": ("spot", "preemptible"),
    "karpenter.sh/capacity-type": ("spot",),
    "eks.amazonaws.com/capacityType": ("SPOT",),
    "kubernetes.azure.com/scalesetpriority": ("spot",),
}
FLEX_LABEL = "cloud.google.com/gke-flex-start"
ACCELERATOR_LABELS = ("cloud.google.com/gke-accelerator", "cloud.google.com/gke-tpu-accelerator")
FAMILY_LABEL, TYPE_LABEL = "cloud.google.com/machine-family", "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"
PARTITION_LABEL = "cloud.google.com/gke-gpu-partition-size"
CLIENTS_LABEL = "cloud.google.com/gke-max-shared-clients-per-gpu"
CLASS_LABEL = "cloud.google.com/compute-class"
# Nodes of GKE Autopilot, which bills these classes by what a pod requests, on whatever machine.
AUTOPILOT_NODES, AUTOPILOT_FAMILY = "gk3-", "ek"
AUTOPILOT_CLASSES = ("", "general-purpose", "autopilot", "autopilot-spot")
BY_REQUEST_CLASSES = ("Balanced", "Scale-Out")
# Partitions of one GPU, by the first number of the profile's name.
PARTITIONS = {"1": 7, "2": 3, "3": 2, "4": 1, "7": 1}


@dataclass(frozen=True)
class Usage:
    """The requests of one pod, and the machine below it.

    Attributes:
        component: `learner`, `actor`, `replay` or `cost`.
        accelerators: Requested GPUs or TPU chips; of a divided GPU its parts, by `parts`.
        accelerator: Name of the accelerator; "" where neither node nor pod has one.
        family: Machine family; "" where neither node nor pod has one.
        spot: None where unknown.
        flex: Whether the node came by flex-start, which has a price of its own.
        parts: Into how many parts each GPU is divided, by MIG or by sharing; 1 is whole.
        zone: Zone of the node; "" where nodes may not be read.
        node: Name of the node.
        machine: Machine type of the node; "" where nodes may not be read.
        node_cpus: All vCPUs of the node; 0 where nodes may not be read.
        node_memory_gib: All its memory.
        node_accelerators: All its accelerators, or their parts.
    """

    component: str
    cpus: float
    memory_gib: float
    accelerators: float = 0.0
    is_tpu: bool = False
    accelerator: str = ""
    family: str = ""
    spot: bool | None = None
    flex: bool = False
    parts: int = 1
    zone: str = ""
    node: str = ""
    machine: str = ""
    node_cpus: float = 0.0
    node_memory_gib: float = 0.0
    node_accelerators: float = 0.0


def occupies_node(pod: Any) -> bool:
    """Return whether a pod is on a node: from its binding until its containers have ended.

    Args:
        pod: A `V1Pod`.
    """
    return bool(pod.spec.node_name) and pod.status.phase not in ("Succeeded", "Failed")


def is_ready(pod: Any) -> bool:
    """Return whether all containers of a pod are ready.

    Args:
        pod: A `V1Pod`.
    """
    statuses = pod.status.container_statuses or []
    return bool(statuses) and all(status.ready for status in statuses)


def component_of(pod: Any) -> str:
    """Return the role of a pod, or of a volume claim, in the release.

    Args:
        pod: A `V1Pod` or a `V1PersistentVolumeClaim`.
    """
    component = str((pod.metadata.labels or {}).get(COMPONENT, "other"))
    return "cost" if component == "last-resort" else component


def exit_code_of(pod: Any) -> int | None:
    """Return the code of the newest end of a pod's own container, no sidecar; None before one.

    Args:
        pod: A `V1Pod`.
    """
    status = own_status(pod)
    for state in () if status is None else (status.state, status.last_state):
        if state is not None and state.terminated is not None:
            return int(state.terminated.exit_code)
    return None


def own_status(pod: Any) -> Any | None:
    """Return the status of a pod's own container, no sidecar; None before it has one.

    Args:
        pod: A `V1Pod`.
    """
    found = (one for one in pod.status.container_statuses or [] if one.name == component_of(pod))
    return next(found, None)


def usage_of(pod: Any, node: Any | None) -> Usage:
    """Return a pod's requests and its place.

    Args:
        pod: A `V1Pod`.
        node: Its `V1Node`; None where nodes may not be read.
    """
    spec = pod.spec
    requested = _requested(spec)
    labels = (node.metadata.labels or {}) if node is not None else {}
    where = (spec.node_selector or {}) | labels
    partition = where.get(PARTITION_LABEL) or _partition(requested)
    spot: bool | None = any(where.get(name) in values for name, values in SPOT_LABELS.items())
    if node is None and not spot:
        spot = None
    # A claim of dynamic resource allocation counts as one device.
    gpus = _gpus(requested) or float(len(spec.resource_claims or ()))
    capacity = _amounts((node.status.capacity or {}) if node is not None and node.status else {})
    return Usage(
        component=component_of(pod),
        cpus=requested.get("cpu", 0.0),
        memory_gib=requested.get("memory", 0.0) / 2**30,
        accelerators=requested.get(TPU) or gpus,
        is_tpu=requested.get(TPU, 0.0) > 0,
        accelerator=next((where[name] for name in ACCELERATOR_LABELS if name in where), ""),
        family=_family(where, spec.node_name or ""),
        spot=spot,
        flex=where.get(FLEX_LABEL) == "true",
        parts=_parts(partition) * int(where.get(CLIENTS_LABEL) or 1),
        zone=where.get(ZONE_LABEL, ""),
        node=spec.node_name or "",
        machine=where.get(TYPE_LABEL, ""),
        node_cpus=capacity.get("cpu", 0.0),
        node_memory_gib=capacity.get("memory", 0.0) / 2**30,
        node_accelerators=capacity.get(TPU) or _gpus(capacity),
    )


def _requested(spec: Any) -> dict[str, float]:
    """Return what the scheduler reserves for a pod.

    Sidecars, which are init containers that go on, run beside the containers; an init container
    runs beside the sidecars before it only. Resources of the whole pod go before those of its
    containers.
    """
    requested = _sum(_requests(container.resources) for container in spec.containers)
    sidecars: dict[str, float] = {}
    peak: dict[str, float] = {}
    for container in spec.init_containers or []:
        now = _sum((sidecars, _requests(container.resources)))
        if container.restart_policy == "Always":
            sidecars = now
        peak = {name: max(peak.get(name, 0.0), now.get(name, 0.0)) for name in peak | now}
    requested = _sum((requested, sidecars))
    requested = {
        name: max(requested.get(name, 0.0), peak.get(name, 0.0)) for name in requested | peak
    }
    return _sum((requested | _requests(spec.resources), _amounts(spec.overhead or {})))


def _requests(resources: Any) -> dict[str, float]:
    """Return requests; where there is none the limit counts, as for Kubernetes."""
    if not resources:
        return {}
    return _amounts((resources.limits or {}) | (resources.requests or {}))


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _amounts(texts: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: _amount(str(text))
        for name, text in texts.items()
        if name in ("cpu", "memory", GPU, TPU) or name.startswith(MIG)
    }


@lru_cache(4096)
def _amount(text: str) -> float:
    return float(parse_quantity(text))


def _gpus(amounts: Mapping[str, float]) -> float:
    return sum(amount for name, amount in amounts.items() if name == GPU or name.startswith(MIG))


def _partition(requested: Mapping[str, float]) -> str:
    return next((name.removeprefix(MIG) for name in requested if name.startswith(MIG)), "")


def _parts(partition: str) -> int:
    """Return how many partitions such as `1g.5gb` a GPU has; 1 for a name of another form."""
    found = re.match(r"(\d)g\.(\d+)gb", partition)
    if not found:
        return 1
    # A profile of one slice with twice its memory: four fit.
    return 4 if partition.startswith("1g.20gb") else PARTITIONS.get(found[1], 1)


def _family(where: Mapping[str, str], node: str) -> str:
    family = where.get(FAMILY_LABEL) or where.get(TYPE_LABEL, "").partition("-")[0]
    is_accelerated = any(name in where for name in ACCELERATOR_LABELS)
    if is_accelerated or not (node.startswith(AUTOPILOT_NODES) or family == AUTOPILOT_FAMILY):
        return family
    compute_class = where.get(CLASS_LABEL, "")
    if compute_class in AUTOPILOT_CLASSES:
        return AUTOPILOT_FAMILY
    if compute_class in BY_REQUEST_CLASSES:
        return f"autopilot-{compute_class.lower()}"
    return family
