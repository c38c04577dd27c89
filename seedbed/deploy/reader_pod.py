"""The pod through which a run's volume is read: one that is there, or one for the time of that."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from seedbed.deploy.obstacles import Events, pod_obstacle, pod_state
from seedbed.deploy.plan import ApiObject, template_of
from seedbed.deploy.programs import run
from seedbed.deploy.releases import Learner, Release
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.formats import duration

_COMPONENT = "fetch"
# A pod that nobody deletes ends by itself; a longer transfer goes on through another one.
_LIFE_S = 3600
_START_S, _INTERVAL_S = 300.0, 1.0
_CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class Reader(NamedTuple):
    """A container that mounts the volume of a learner.

    Attributes:
        pod: Name of its pod.
        container: Its name.
        mount: Path of the volume in it.
    """

    pod: str
    container: str
    mount: str


@contextmanager
def reader_of(
    release: Release, learner: Learner, print_line: Callable[[str], None]
) -> Iterator[Reader]:
    """Yield a container that reads a learner's volume; what was made for that goes with the block.

    A pod that has the volume is used, because a claim may be bound to that pod's node
    (ReadWriteOnce).

    Raises:
        SeedbedError: DEPLOY, the volume is gone or empty, or no pod starts with it.
    """
    kubectl = ("kubectl", f"--namespace={release.namespace}")
    if (found := _present(kubectl, learner)) is not None:
        yield found
        return
    _check_volume(kubectl, release, learner)
    selector = f"-l={release.label},app.kubernetes.io/component={_COMPONENT}"
    run(*kubectl, "delete", "pods", selector, "--field-selector=status.phase=Failed")
    made = run(*kubectl, "create", "-f=-", "-o=name", stdin=json.dumps(_pod(release, learner)))
    name = made.strip().rpartition("/")[2]
    try:
        print_line(f"no pod of {release.name} has the volume: {name} reads it meanwhile")
        _wait(kubectl, name, print_line)
        yield Reader(name, _COMPONENT, learner.mount)
    finally:
        with suppress(SeedbedError):  # it ends by itself
            run(*kubectl, "delete", "pod", name, "--grace-period=0", "--wait=false")


def _present(kubectl: tuple[str, ...], learner: Learner) -> Reader | None:
    """Return a running container that has the volume, of the learner rather than of others."""
    text = run(*kubectl, "get", "pods", "-o=json", "--field-selector=status.phase=Running")
    readers = []
    for item in json.loads(text)["items"]:
        pod = ApiObject(item)
        is_its_own = learner.is_pod(pod)
        claims = {
            volume["name"]
            for volume in pod["spec"].get("volumes", [])
            if learner.claim
            and volume.get("persistentVolumeClaim", {}).get("claimName") == learner.claim
        }
        if is_its_own:
            claims.add("runs")
        readers += [(not is_its_own, reader) for reader in _containers(pod, claims)]
    return min(readers, default=(None, None))[1]


def _containers(pod: ApiObject, volumes: set[str]) -> Iterator[Reader]:
    """Yield the running containers of a pod that mount one of the volumes as a whole."""
    running = {
        status["name"]
        for status in pod["status"].get("containerStatuses", [])
        if "running" in status["state"]
    }
    for container in pod["spec"]["containers"]:
        for mount in container.get("volumeMounts", []):
            is_whole = "subPath" not in mount and "subPathExpr" not in mount
            if container["name"] in running and mount["name"] in volumes and is_whole:
                yield Reader(pod["metadata"]["name"], container["name"], mount["mountPath"])


def _check_volume(kubectl: tuple[str, ...], release: Release, learner: Learner) -> None:
    """Raise for a volume that no new pod can mount."""
    if not learner.claim and "csi" not in learner.volume:
        where = f", and its checkpoints are in {learner.checkpoints}" if learner.checkpoints else ""
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"{release.name} has its run in the learner's pod (learner.persistence.type: none), "
            f"and no such pod runs{where}",
        )
    if not learner.claim:
        return
    claim = json.loads(run(*kubectl, "get", "persistentvolumeclaim", learner.claim, "-o=json"))
    if claim["status"].get("phase") != "Bound":
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"the claim {learner.claim} of {release.name} is {claim['status'].get('phase')}: no "
            "learner has had it yet, so there is nothing to fetch",
        )


def _pod(release: Release, learner: Learner) -> dict[str, Any]:
    """Return a pod with the volume, that passes Pod Security `restricted`.

    It has the image, the requests and the place of the cheapest pod of the release, but no label
    by which a Service, a network policy or the meter selects a role.
    """
    (like, *_) = [*release.workloads("cost"), *release.workloads("actor"), learner.workload]
    of = template_of(like)["spec"]
    container = of["containers"][0]
    account = template_of(learner.workload)["spec"].get("serviceAccountName", "default")
    meta: dict[str, Any] = {
        "generateName": f"{release.name}-{_COMPONENT}-",
        "labels": {
            "app.kubernetes.io/part-of": "seedbed",
            "app.kubernetes.io/instance": release.name,
            "app.kubernetes.io/component": _COMPONENT,
        },
    }
    if "csi" in learner.volume:
        meta["annotations"] = {"gke-gcsfuse/volumes": "true"}
    security = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
    optional = ("nodeSelector", "tolerations", "imagePullSecrets", "priorityClassName")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            **{name: of[name] for name in optional if name in of},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFE_S,
            "terminationGracePeriodSeconds": 0,
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                **security,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": _COMPONENT,
                    "image": container["image"],
                    "imagePullPolicy": container.get("imagePullPolicy", "IfNotPresent"),
                    "command": ["python", "-c", f"import time; time.sleep({_LIFE_S})"],
                    "resources": container.get("resources", {}),
                    "securityContext": _CONTAINER_SECURITY,
                    "volumeMounts": [
                        {"name": "runs", "mountPath": learner.mount, "readOnly": True}
                    ],
                }
            ],
            "volumes": [{**learner.volume, "name": "runs"}],
        },
    }


def _wait(kubectl: tuple[str, ...], name: str, print_line: Callable[[str], None]) -> None:
    """Wait until a pod runs; print what it waits for, once for each change."""
    deadline, before = time.monotonic() + _START_S, ""
    while True:
        pod = json.loads(run(*kubectl, "get", "pod", name, "-o=json"))
        obstacle = pod_obstacle(pod, Events(()))
        if obstacle is not None and obstacle.lasts:
            raise SeedbedError(obstacle.code, obstacle.sentence)
        state = pod_state(pod, obstacle)
        if state == "ready":
            return
        if time.monotonic() >= deadline:
            raise SeedbedError(
                ExitCode.DEPLOY,
                f"the pod {name}, which reads the volume, has not started within "
                f"{duration(_START_S)}: {state}",
            )
        if state.startswith("waits for a node") and state != before:
            print_line(f"  {name}: {state}")
        before = state
        time.sleep(_INTERVAL_S)
