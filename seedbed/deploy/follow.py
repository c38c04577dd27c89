"""Following of a release in the terminal until its actors play."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from seedbed.deploy.obstacles import Events, is_ending, pod_obstacle, pod_state, refusal
from seedbed.deploy.plan import ApiObject, made_later, workloads
from seedbed.deploy.programs import run
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.formats import duration
from seedbed.runtime.text import counted

_INTERVAL_S = 2.0
# A node with an accelerator may take minutes, and its image some more.
_LONGEST_S = 1800.0
# Failures in a row that count: a pod of before an upgrade may fail until it is replaced.
_FAILURES = 10


class _Pods:
    """Pods of a release, of which one may fail for a while.

    Args:
        kubectl: The program with its options.
        release: Name of the release.
        objects: Objects of the rendered chart.
    """

    def __init__(
        self, kubectl: tuple[str, ...], release: str, objects: Sequence[ApiObject]
    ) -> None:
        # A last resort has its own alarm, and is at its end most of the time.
        label = f"app.kubernetes.io/instance={release},app.kubernetes.io/component!=last-resort"
        self._command = (*kubectl, "get", "pods", "-o=json", f"-l={label}")
        self._events = (*kubectl, "get", "events", "-o=json")
        self._workloads = [(x["kind"], x["metadata"]["name"]) for x in workloads(list(objects))]
        self._made_later = made_later(list(objects))
        self._failures = 0
        self._begun = datetime.now(UTC).isoformat(timespec="seconds")[:19] + "Z"

    def states(self) -> dict[str, str] | None:
        """Return the states by name; None where a pod fails, and has not failed for long.

        Raises:
            SeedbedError: DEPLOY, a pod cannot start, or cannot be made; the exit code of a
                container after which no restart helps.
        """
        pods = json.loads(run(*self._command))["items"]
        ends = [pod for pod in pods if is_ending(pod)]
        events = Events(json.loads(run(*self._events))["items"])
        found = {
            str(pod["metadata"]["name"]): (pod, pod_obstacle(pod, events, self._made_later))
            for pod in pods
            if pod not in ends
        }
        lasting = [each for _, each in found.values() if each is not None and each.lasts]
        refusals = (refusal(*one, found, events, self._begun) for one in self._workloads)
        lasting += [each for each in refusals if each is not None]
        if not lasting:
            self._failures = 0
            states = {name: pod_state(pod, each) for name, (pod, each) in found.items()}
            return states | {str(pod["metadata"]["name"]): "ends" for pod in ends}
        self._failures += 1
        if self._failures == _FAILURES:
            raise SeedbedError(lasting[0].code, lasting[0].sentence)
        return None


def follow(
    kubectl: tuple[str, ...],
    release: str,
    objects: Sequence[ApiObject],
    learner: str,
    run_dir: str,
    actors: int,
    print_line: Callable[[str], None],
) -> None:
    """Say what the pods and the learner do, a line for each change, until actors play.

    Args:
        kubectl: The program with its options.
        release: Name of the release.
        objects: Objects of the rendered chart.
        learner: Name of the first learner's pod.
        run_dir: Run directory in the learner's pod.
        actors: Actors that the release has; with 0 of them a ready learner is the end.
        print_line: Takes each line.

    Raises:
        SeedbedError: DEPLOY, a pod cannot start, or cannot be made; the exit code of a container
            after which no restart helps; LEARNER_UNREACHABLE, actors do not play in time.
    """
    deadline = time.monotonic() + _LONGEST_S
    written: dict[str, str] = {}
    pods = _Pods(kubectl, release, objects)
    while time.monotonic() < deadline:
        if (states := pods.states()) is None:
            time.sleep(_INTERVAL_S)
            continue
        if states.get(learner) == "ready":
            status = learner_status(kubectl, learner, run_dir)
            states[learner] = learner_state(status)
            if _plays(status) or (status and not actors):
                _print_changes(written, states, print_line)
                return
        _print_changes(written, states, print_line)
        time.sleep(_INTERVAL_S)
    raise SeedbedError(
        ExitCode.LEARNER_UNREACHABLE,
        f"no actor of {release} played within {duration(_LONGEST_S)}; the release stays: "
        f"`seedbed check release {release} {kubectl[1]}` shows why, `helm {kubectl[1]} uninstall "
        f"{release}` removes it",
    )


def follow_controller(
    kubectl: tuple[str, ...],
    name: str,
    objects: Sequence[ApiObject],
    print_line: Callable[[str], None],
) -> None:
    """Say what the pod of a set's controller does, a line for each change, until it is ready.

    A pod of before an upgrade does not count: the controller of the newest template does.

    Args:
        kubectl: The program with its options.
        name: Name of the set.
        objects: Objects of its release.
        print_line: Takes each line.

    Raises:
        SeedbedError: DEPLOY, it cannot start, or is not ready in time; the exit code of a container
            after which no restart helps.
    """
    deadline = time.monotonic() + _LONGEST_S
    written: dict[str, str] = {}
    pods = _Pods(kubectl, name, objects)
    while time.monotonic() < deadline:
        # Read before the pods: its word on those of before holds for all that come later.
        deployment = json.loads(run(*kubectl, "get", "deployment", f"{name}-set", "-o=json"))
        is_new = _has_new_pods_alone(deployment)
        states = {
            pod: state
            for pod, state in (pods.states() or {}).items()
            if pod.startswith(f"{name}-set-") and (is_new or state == "ends")
        }
        _print_changes(written, states, print_line)
        if "ready" in states.values():
            return
        time.sleep(_INTERVAL_S)
    raise SeedbedError(
        ExitCode.DEPLOY,
        f"the controller of {name} was not ready within {duration(_LONGEST_S)}"
        + "".join(f"; {pod} {state}" for pod, state in written.items() if state != "ends")
        + "; it stays: "
        f"`{' '.join(kubectl)} logs deployment/{name}-set` shows why",
    )


def _has_new_pods_alone(deployment: dict[str, Any]) -> bool:
    """Return whether a Deployment has pods of its newest template, and no others that work."""
    status = deployment.get("status") or {}
    is_seen = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return bool(is_seen and status.get("updatedReplicas", 0) == status.get("replicas", 0) > 0)


def _print_changes(
    written: dict[str, str], states: dict[str, str], print_line: Callable[[str], None]
) -> None:
    for name, state in sorted(states.items()):
        if written.get(name) != state:
            print_line(f"  {name}: {state}")
            written[name] = state


def learner_status(kubectl: tuple[str, ...], learner: str, run_dir: str) -> dict[str, Any]:
    """Return what `seedbed status` says in the learner's pod; empty before it says anything."""
    command = ("exec", learner, "-c=learner", "--", "seedbed", "status", run_dir)
    try:
        found: dict[str, Any] = json.loads(run(*kubectl, *command, "--json"))
    except (SeedbedError, ValueError):
        return {}
    return found


def _plays(status: dict[str, Any]) -> bool:
    if not status or (status["stop_reason"] and not status["over"]):
        return False  # it has failed, or a signal has ended it
    return bool(
        status["over"] or (status["numbers"]["sessions"] and status["counters"]["env_frames"])
    )


def learner_state(status: dict[str, Any]) -> str:
    """Return what a learner's status says, in a line that changes seldom."""
    if not status:
        return "ready, and writes no status yet"
    if over := status["over"]:
        return f"finished: {over}"
    if reason := status["stop_reason"]:
        return f"ends: {reason}"
    if not (sessions := status["numbers"]["sessions"]):
        return f"{status['state']}: {status['waiting_for'] or 'waits for actors'}"
    play = f"{counted(sessions, 'group')} of environments play"
    return f"{play}; the learner: {waiting}" if (waiting := status["waiting_for"]) else play
