"""What a run of a set on a cluster has at once, from its objects, and the set's limits of it."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from seedbed.config.yaml_text import load_yaml

_ACCELERATORS = ("nvidia.com/gpu", "google.com/tpu")
_COMPONENT = "app.kubernetes.io/component"


class Limits(NamedTuple):
    """The most that all awake runs together may have; 0 is no limit. Also what runs have."""

    learners: int = 0
    actors: int = 0
    gpus: int = 0

    def plus(self, other: "Limits") -> "Limits":
        """Return what two have together."""
        return Limits(*map(operator.add, self, other))


def needs_of(objects: Sequence[dict[str, Any]]) -> Limits:
    """Return the learners, actors and accelerators that a run takes, at the most.

    A learner of several hosts is one learner. Actors in the learner's pod count, and where others
    choose the number of actors, the largest number counts.

    Args:
        objects: Objects of the run, or their template.
    """
    learners = actors = sidecars = gpus = 0
    chosen = [0]
    for item in objects:
        component = item["metadata"].get("labels", {}).get(_COMPONENT)
        for count, pod in _pods_of(item):
            if component == "learner":
                learners += 1 if item["kind"] == "JobSet" else count
                sidecars += count * _processes(pod)
            elif component == "actor":
                actors += count
            for container in pod["containers"]:
                asked = (container.get("resources") or {}).get("limits") or {}
                gpus += count * sum(int(asked.get(name, 0)) for name in _ACCELERATORS)
        if item["kind"] == "ScaledObject":
            chosen.append(int(item["spec"]["maxReplicaCount"]))
        if prices := (item.get("data") or {}).get("prices.yaml"):
            scaling = load_yaml(prices).get("autoscaler") or {}
            chosen += [int(scaling["maxReplicas"])] if scaling.get("enabled") else []
    return Limits(learners, max(actors, *chosen) + sidecars, gpus)


def _processes(pod: dict[str, Any]) -> int:
    """Return the actors that a learner's pod has beside the learner."""
    containers = [*pod["containers"], *(pod.get("initContainers") or [])]
    return sum(
        int(argument.removeprefix("--processes="))
        for container in containers
        for argument in container.get("args") or []
        if container["name"] == "actor" and argument.startswith("--processes=")
    )


def _pods_of(item: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the numbers and the specifications of an object's pods."""
    spec = item.get("spec") or {}
    if item["kind"] == "JobSet":
        for job in spec["replicatedJobs"]:
            one = job["template"]["spec"]
            yield int(one.get("parallelism", 1)), one["template"]["spec"]
    elif item["kind"] in ("StatefulSet", "Deployment"):
        yield int(spec.get("replicas", 1)), spec["template"]["spec"]
