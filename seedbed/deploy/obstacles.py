"""What is in the way of a release's pods, by their states and the events of the cluster.

`seedbed deploy` and `seedbed check release` have this one judge.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from seedbed.launch.supervisor import describe_exit, last_cause
from seedbed.runtime.exit_codes import FATAL, ExitCode

# Restarts of a container after which its exit code counts, whatever it is.
RESTARTS = 5
# An actor whose learner has refused it may be accepted by the next learner, but not soon.
_NO_RESTART_MENDS = FATAL | {ExitCode.REFUSED_BY_LEARNER}
# Reasons of a waiting container that no waiting mends.
_PUSH = "push the image (--registry R), or name one that is there: --set image.registry=R"
_HOPELESS = {
    "ErrImagePull": _PUSH,
    "ImagePullBackOff": _PUSH,
    "ErrImageNeverPull": "load the image into the nodes, or --set image.pullPolicy=IfNotPresent",
    "InvalidImageName": "correct the image's name: --set image.registry=R",
    "CreateContainerConfigError": "make the Secret or ConfigMap that the pod names",
    "CreateContainerError": "correct what the message names",
    "RunContainerError": "correct what the message names",
}
# What the API server answers to a workload that makes pods, and what to do.
_REFUSED = (
    (
        r"exceeded quota",
        "lower the number or the requests of pods, or ask for a larger ResourceQuota",
    ),
    (
        r"must specify|(minimum|maximum) \S+ usage",
        "set the resources of that role to what the namespace's ResourceQuota and LimitRange want",
    ),
    (r"violates PodSecurity", "take out the value that the namespace's Pod Security forbids"),
    (
        r"serviceaccount",
        "name a service account that is there (seedbed-meter and seedbed-set are of the chart "
        "seedbed-platform, rights.namespaces)",
    ),
    (r"admission webhook|denied the request", "change what the policy of the cluster names"),
)
_VOLUMES = r"unbound immediate|persistentvolumeclaim|volume node affinity|storageclass"
# What the scheduler finds in the nodes, and what to do.
_UNSCHEDULED = (
    (
        _VOLUMES,
        "see its claim: a StorageClass that is there, in a zone with nodes",
    ),
    (r"Insufficient (\S+)", "ask for less of it, or for nodes that have more of it, or a quota"),
    (r"untolerated taint", "add the toleration of that taint to the role's values"),
    (r"node affinity|node selector", "correct nodeSelector or accelerator of the role's values"),
)
_MISSING = re.compile(r'(secret|configmap) "([^"]+)" not found')
_REPLICA_SETS_SUFFIX = r"(-[0-9a-z]{1,10}|-host-\d+)?"


class Obstacle(NamedTuple):
    """Something that keeps a pod from working.

    Attributes:
        message: What it is.
        advice: What to do; empty where the message has it.
        code: Exit code of the container that ended; else DEPLOY.
        lasts: Whether waiting does not mend it.
    """

    message: str
    advice: str = ""
    code: ExitCode = ExitCode.DEPLOY
    lasts: bool = True

    @property
    def sentence(self) -> str:
        """The message with the advice."""
        return f"{self.message}; {self.advice}" if self.advice else self.message


class Events:
    """Events of a namespace, by the object that they are about.

    Args:
        items: As `kubectl get events -o json` shows them.
    """

    def __init__(self, items: Iterable[dict[str, Any]]) -> None:
        self._items = sorted(items, key=time_of)

    def newest(self, name: str, *reasons: str) -> dict[str, Any] | None:
        """Return the newest event about an object, or one that a workload of that name has made.

        Args:
            name: Name of the object.
            reasons: Reasons that count.
        """
        pattern = re.compile(re.escape(name) + _REPLICA_SETS_SUFFIX)
        return next(
            (
                event
                for event in reversed(self._items)
                if event.get("reason") in reasons
                and pattern.fullmatch(str(event["involvedObject"].get("name")))
            ),
            None,
        )


def time_of(event: Mapping[str, Any]) -> str:
    """Return the newest time of an event, in ISO 8601 of UTC; empty without one."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event.get("metadata", {}).get("creationTimestamp")
        or ""
    )


def refusal(
    kind: str, name: str, pods: Iterable[str], events: Events, since: str = ""
) -> Obstacle | None:
    """Return why a workload has no pod at all that the namespace would let it make.

    Args:
        kind: Kind of the workload.
        name: Its name.
        pods: Names of the release's pods.
        events: Events of the namespace.
        since: Time of the oldest event that counts, as of `time_of`.
    """
    event = events.newest(name, "FailedCreate")
    if event is None or time_of(event) < since:
        return None
    about, message = event["involvedObject"], str(event["message"])
    if any(pod.startswith(f"{about['name']}-") for pod in pods):
        return None
    advice = _advice(_REFUSED, message)
    return Obstacle(f"{about.get('kind', kind)} {about['name']} cannot make its pods: {message}",
                    advice)  # fmt: skip


def pod_obstacle(
    pod: dict[str, Any], events: Events, made_later: Collection[str] = ()
) -> Obstacle | None:
    """Return what keeps a pod from working; None where it works, or may soon.

    Args:
        pod: As `kubectl get pods -o json` shows it.
        events: Events of the namespace.
        made_later: Names of Secrets that something of the release makes once it runs.
    """
    name, status = str(pod["metadata"]["name"]), pod["status"]
    for container in _containers(status):
        if found := _container_obstacle(name, container):
            return found
    if message := why_no_node(pod):
        if pod.get("spec", {}).get("schedulingGates"):
            return Obstacle(f"{name} {message}", lasts=False)
        comes = events.newest(name, "TriggeredScaleUp") is not None
        if re.search(_VOLUMES, message, re.IGNORECASE) and (claims := _claims_of(pod)):
            message = f"{message} (it mounts the claim {', '.join(claims)})"
        advice = "" if comes else _advice(_UNSCHEDULED, message)
        words = f"{message} (a node has been ordered)" if comes else message
        return Obstacle(f"{name} waits for a node: {words}", advice, lasts=False)
    if has_begun(pod):
        return None
    return _mount_obstacle(name, events, made_later)


def why_no_node(pod: Mapping[str, Any]) -> str:
    """Return why a pod has no node; "" where it has one, or was not looked at yet.

    Args:
        pod: As `kubectl get pods -o json` shows it.
    """
    # The scheduler's own message names neither the queue nor the gate.
    if gates := pod.get("spec", {}).get("schedulingGates"):
        return f"waits in a queue: {', '.join(gate['name'] for gate in gates)}"
    scheduled = conditions_of(pod).get("PodScheduled", {})
    return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""


def _claims_of(pod: Mapping[str, Any]) -> list[str]:
    volumes = pod.get("spec", {}).get("volumes", [])
    claims = (volume.get("persistentVolumeClaim", {}).get("claimName") for volume in volumes)
    return [claim for claim in claims if claim]


def _mount_obstacle(name: str, events: Events, made_later: Collection[str]) -> Obstacle | None:
    """Return why a pod's volumes or its network are not there."""
    event = events.newest(name, "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")
    if event is None:
        return None
    message = str(event["message"])
    if missing := _MISSING.search(message):
        kind = {"secret": "Secret", "configmap": "ConfigMap"}[missing[1]]
        words = f"{name} waits for {kind} {missing[2]}"
        if missing[2] in made_later:
            return Obstacle(f"{words}, which the release makes", lasts=False)
        return Obstacle(f"{words}, which is not there", f"make the {kind}, or name another one")
    return Obstacle(f"{name} does not start: {event['reason']}: {message}", lasts=False)


def _container_obstacle(pod: str, container: Mapping[str, Any]) -> Obstacle | None:
    waiting = container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in _HOPELESS:
        return Obstacle(
            f"{pod} does not start: {reason} of {container['image']}: {waiting.get('message', '')}",
            _HOPELESS[reason],
        )
    for state in ("state", "lastState"):
        ended = container.get(state, {}).get("terminated")
        if not ended:
            continue
        if ended.get("reason") == "OOMKilled":
            return Obstacle(
                f"{container['name']} of {pod} was killed for want of memory",
                f"raise --set {container['name']}.resources.limits.memory, or put the replay into "
                "shards (--set replay.shards=4)",
            )
        loops = reason == "CrashLoopBackOff" and container.get("restartCount", 0) >= RESTARTS
        code = ended["exitCode"]
        if loops or code in _NO_RESTART_MENDS:
            return Obstacle(
                f"{container['name']} of {pod} {ending(ended)}",
                code=ExitCode(code) if code in _NO_RESTART_MENDS else ExitCode.DEPLOY,
            )
    return None


def ending(terminated: Mapping[str, Any]) -> str:
    """Return how a container has ended: its exit code and its last words.

    Args:
        terminated: The state `terminated` of a container.
    """
    cause = last_cause(str(terminated.get("message") or ""))
    words = f" Its last words: {cause}" if cause else ""
    return f"ended with {describe_exit(int(terminated['exitCode']))}{words}"


def pod_state(pod: dict[str, Any], obstacle: Obstacle | None) -> str:
    """Return the state of a pod in words.

    Args:
        pod: As `kubectl get pods -o json` shows it.
        obstacle: As `pod_obstacle` returns it, one that does not last.
    """
    name, status = pod["metadata"]["name"], pod["status"]
    if obstacle is not None:
        return obstacle.message.removeprefix(f"{name} ")
    if is_ready(pod):
        return "ready"
    waiting = [
        item["state"]["waiting"].get("reason", "")
        for item in status.get("containerStatuses", [])
        if "waiting" in item.get("state", {})
    ]
    return ", ".join(waiting) or f"{status.get('phase', 'Pending').lower()}, not ready yet"


def conditions_of(pod: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the conditions of a pod by their type."""
    return {item["type"]: item for item in pod["status"].get("conditions", [])}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether the kubelet has found a pod ready."""
    return bool(conditions_of(pod).get("Ready", {}).get("status") == "True")


def is_ending(pod: Mapping[str, Any]) -> bool:
    """Return whether somebody has deleted a pod, which may be ready until its end."""
    return "deletionTimestamp" in pod["metadata"]


def has_begun(pod: Mapping[str, Any]) -> bool:
    """Return whether a container of a pod runs, or has run."""
    return any(
        "running" in item.get("state", {})
        or "terminated" in item.get("state", {})
        or item.get("lastState")
        for item in _containers(pod["status"])
    )


def _containers(status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(kind, [])


def _advice(cures: Iterable[tuple[str, str]], message: str) -> str:
    found = (cure for cause, cure in cures if re.search(cause, message, re.IGNORECASE))
    return next(found, "")
