"""Following of a release in the terminal until its actors play."""

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from seedbed.deploy.programs import run
from seedbed.launch.supervisor import describe_exit, last_cause
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.formats import duration
from seedbed.runtime.text import counted

_INTERVAL_S = 2.0
# A node with an accelerator may take minutes, and its image some more.
_LONGEST_S = 1800.0
# Failures in a row that count: a pod of before an upgrade may fail until it is replaced.
_FAILURES = 10
# Restarts of a container after which its exit code counts, whatever it is.
_RESTARTS = 5
# Reasons of a waiting container that no waiting mends.
_PUSH = "push the image (--registry R), or name one that is there: --set image.registry=R"
_HOPELESS = {
    "ErrImagePull": _PUSH,
    "ImagePullBackOff": _PUSH,
    "ErrImageNeverPull": "load the image into the nodes, or --set image.pullPolicy=IfNotPresent",
    "InvalidImageName": "correct the image's name: --set image.registry=R",
    "CreateContainerConfigError": "make the Secret or ConfigMap that the pod names",
}
# Exit codes after which a restart of a container does not help.
_FATAL = (
    ExitCode.USAGE, ExitCode.CONFIG, ExitCode.ENVIRONMENT, ExitCode.BACKEND,
    ExitCode.RUN_DIRECTORY, ExitCode.RESUME_REFUSED, ExitCode.REPLAY_FILES,
    ExitCode.REFUSED_BY_LEARNER,
)  # fmt: skip


class _Pods:
    """Pods of a release, of which one may fail for a while.

    Args:
        kubectl: The program with its options.
        release: Name of the release.
    """

    def __init__(self, kubectl: tuple[str, ...], release: str) -> None:
        # A last resort has its own alarm, and is at its end most of the time.
        label = f"app.kubernetes.io/instance={release},app.kubernetes.io/component!=last-resort"
        self._command = (*kubectl, "get", "pods", "-o=json", f"-l={label}")
        self._events = (
            *kubectl,
            "get",
            "events",
            "-o=json",
            "--field-selector=reason=FailedCreate",
        )
        self._release = release
        self._failures = 0
        self._begun = datetime.now(UTC)

    def states(self) -> dict[str, str] | None:
        """Return the states by name; None where a pod fails, and has not failed for long.

        Raises:
            SeedbedError: DEPLOY, a pod cannot start, or cannot be made.
        """
        pods = json.loads(run(*self._command))["items"]
        try:
            states = {pod["metadata"]["name"]: pod_state(pod) for pod in pods}
            self._check_creations(states)
        except SeedbedError:
            self._failures += 1
            if self._failures == _FAILURES:
                raise
            return None
        self._failures = 0
        return states

    def _check_creations(self, pods: Iterable[str]) -> None:
        """Raise for a workload whose pods a quota, a limit range or a policy refuses."""
        for event in json.loads(run(*self._events))["items"]:
            about = event["involvedObject"]
            name, when = str(about["name"]), event.get("lastTimestamp") or event.get("eventTime")
            is_ours = name.startswith(f"{self._release}-")
            if not is_ours or any(pod.startswith(f"{name}-") for pod in pods):
                continue
            if when and datetime.fromisoformat(when.replace("Z", "+00:00")) >= self._begun:
                raise SeedbedError(
                    ExitCode.DEPLOY,
                    f"{about['kind']} {name} cannot make its pods: {event['message']}",
                )


def follow(
    kubectl: tuple[str, ...],
    release: str,
    learner: str,
    run_dir: str,
    actors: int,
    print_line: Callable[[str], None],
) -> None:
    """Say what the pods and the learner do, a line for each change, until actors play.

    Args:
        kubectl: The program with its options.
        release: Name of the release.
        learner: Name of the first learner's pod.
        run_dir: Run directory in the learner's pod.
        actors: Actors that the release has; with 0 of them a ready learner is the end.
        print_line: Takes each line.

    Raises:
        SeedbedError: as `pod_state`; LEARNER_UNREACHABLE, actors do not play in time.
    """
    deadline = time.monotonic() + _LONGEST_S
    written: dict[str, str] = {}
    pods = _Pods(kubectl, release)
    while time.monotonic() < deadline:
        if (states := pods.states()) is None:
            time.sleep(_INTERVAL_S)
            continue
        if states.get(learner) == "ready":
            status = _status(kubectl, learner, run_dir)
            states[learner] = learner_state(status)
            if _plays(status) or (status and not actors):
                _print_changes(written, states, print_line)
                return
        _print_changes(written, states, print_line)
        time.sleep(_INTERVAL_S)
    raise SeedbedError(
        ExitCode.LEARNER_UNREACHABLE,
        f"no actor of {release} played within {duration(_LONGEST_S)}; the release stays: "
        f"`{' '.join(kubectl)} get pods,events` shows why, `helm uninstall {release}` removes it",
    )


def _print_changes(
    written: dict[str, str], states: dict[str, str], print_line: Callable[[str], None]
) -> None:
    for name, state in sorted(states.items()):
        if written.get(name) != state:
            print_line(f"  {name}: {state}")
            written[name] = state


def _status(kubectl: tuple[str, ...], learner: str, run_dir: str) -> dict[str, Any]:
    """Return what `seedbed status` says in the learner's pod; empty before it says anything."""
    command = ("exec", learner, "-c=learner", "--", "seedbed", "status", run_dir)
    try:
        found: dict[str, Any] = json.loads(run(*kubectl, *command, "--json"))
    except (SeedbedError, ValueError):
        return {}
    return found


def _plays(status: dict[str, Any]) -> bool:
    over = status.get("over") or status.get("stop_reason")
    return bool(status) and bool(
        over or (status["numbers"]["sessions"] and status["counters"]["env_frames"])
    )


def learner_state(status: dict[str, Any]) -> str:
    """Return what a learner's status says, in a line that changes seldom."""
    if not status:
        return "ready, and writes no status yet"
    if over := status.get("over") or status.get("stop_reason"):
        return f"finished: {over}"
    if not (sessions := status["numbers"]["sessions"]):
        return f"{status['state']}: {status['waiting_for'] or 'waits for actors'}"
    play = f"{counted(sessions, 'group')} of environments play"
    return f"{play}; the learner: {waiting}" if (waiting := status["waiting_for"]) else play


def pod_state(pod: dict[str, Any]) -> str:
    """Return the state of a pod in words.

    Args:
        pod: As `kubectl get pods -o json` shows it.

    Raises:
        SeedbedError: The pod cannot start, and waiting does not mend that: DEPLOY, or the exit code
            of a container after which no restart helps.
    """
    name, status = pod["metadata"]["name"], pod["status"]
    for container in status.get("containerStatuses", []):
        _check_container(name, container)
    conditions = {item["type"]: item for item in status.get("conditions", [])}
    if conditions.get("PodScheduled", {}).get("status") == "False":
        return f"waits for a node: {conditions['PodScheduled'].get('message', '')}"
    if conditions.get("Ready", {}).get("status") == "True":
        return "ready"
    waiting = [
        item["state"]["waiting"].get("reason", "")
        for item in status.get("containerStatuses", [])
        if "waiting" in item.get("state", {})
    ]
    return ", ".join(waiting) or f"{status.get('phase', 'Pending').lower()}, not ready yet"


def _check_container(pod: str, container: dict[str, Any]) -> None:
    waiting = container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in _HOPELESS:
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"{pod} does not start: {reason} of {container['image']}: "
            f"{waiting.get('message', '')}; {_HOPELESS[reason]}",
        )
    for state in ("state", "lastState"):
        ended = container.get(state, {}).get("terminated")
        loops = reason == "CrashLoopBackOff" and container.get("restartCount", 0) >= _RESTARTS
        if ended and (loops or ended["exitCode"] in _FATAL) and ended.get("reason") != "OOMKilled":
            cause, code = last_cause(ended.get("message", "")), ended["exitCode"]
            raise SeedbedError(
                ExitCode(code) if code in _FATAL else ExitCode.DEPLOY,
                f"{container['name']} of {pod} ended with {describe_exit(code)}"
                f"{f' Its last words: {cause}' if cause else ''}",
            )
        if ended and ended.get("reason") == "OOMKilled":
            raise SeedbedError(
                ExitCode.DEPLOY,
                f"{container['name']} of {pod} was killed for want of memory: raise "
                f"--set {container['name']}.resources.limits.memory, or put the replay into shards "
                "(--set replay.shards=4)",
            )
