"""Why a set on a cluster does not go on: a pause, its bound, a hold, or its controller."""

import json
from collections.abc import Mapping
from typing import Any

from seedbed.deploy.obstacles import Events, pod_obstacle, pod_state, refusal
from seedbed.deploy.programs import attempt
from seedbed.deploy.set_releases import OVER, ClusterSet, set_there, states_in_words

_WORDS = {
    "paused": "paused: ",
    "holds": "nothing else starts: ",
    "ended_by": "ended by: ",
    "controller": "",
}


def standing(one: ClusterSet) -> dict[str, str | None]:
    """Return what keeps a set from going on, by its kind; None where it does not."""
    return {
        "paused": one.paused or None,
        "holds": one.state.get("holds") or _why_all_wait(one) or None,
        "ended_by": one.state.get("endedBy") or None,
        "controller": _why_silent(one) or None,
    }


def sentences(found: Mapping[str, Any]) -> list[str]:
    """Return what `standing` has found, each in a sentence; what is said by another is left out."""
    told = dict.fromkeys([found["ended_by"], f"paused: {found['paused']}"])
    return [
        f"{words}{found[key]}"
        for key, words in _WORDS.items()
        if found[key] and not (key == "holds" and found[key] in told)
    ]


def _why_all_wait(one: ClusterSet) -> str:
    """Return why the first run waits, where each that is to go on waits for a reason of its own."""
    going = {x: run for x, run in one.runs.items() if run["state"] not in (*OVER, "paused")}
    if not going or not all(x["state"] == "waiting" and x.get("reason") for x in going.values()):
        return ""
    name, run = next(iter(going.items()))
    return f"{name}: {run['reason']}"


def news_of(name: str, namespace: str) -> str:
    """Return what the controller of a set does, which has told it since it is ready.

    Raises:
        SeedbedError: As `set_there`.
    """
    one = set_there(name, namespace)
    held = sentences(standing(one)) if one is not None else []
    if not held and one is not None and one.is_over:
        return f"all its runs are over ({states_in_words(one.runs)})"
    return "; ".join(held) or "its controller starts runs while there is room"


def _why_silent(one: ClusterSet) -> str:
    """Return why the controller of a set saves nothing, with what to do; empty where it does."""
    has_begun = "unixTime" in one.state
    if one.is_over or (has_begun and not one.is_silent()):
        return ""
    at = f"-n {one.namespace}"
    if one.controller is None:
        return "its controller is gone: the same `seedbed deploy` makes it again"
    if (one.controller.get("status") or {}).get("readyReplicas"):
        return f"its controller is silent: `seedbed logs {one.name} {at}` prints its log"
    words = "its controller is away" if has_begun else "its controller has not come"
    return f"{words}: {_obstacle(one)}"


def _obstacle(one: ClusterSet) -> str:
    """Return what is in the way of the controller's pod, with what to do."""
    name = f"{one.name}-set"
    see = f"`kubectl -n {one.namespace} describe deployment,pod -l {one.controllers}` tells why"
    kubectl = ("kubectl", f"--namespace={one.namespace}", "get")
    done = attempt(*kubectl, "pods", "-o=json", f"-l={one.controllers}")
    listed = attempt(*kubectl, "events", "-o=json")
    if done.returncode:
        return see
    pods = json.loads(done.stdout)["items"]
    events = Events(json.loads(listed.stdout)["items"] if not listed.returncode else [])
    names = [str(pod["metadata"]["name"]) for pod in pods]
    none = refusal("Deployment", name, names, events)
    for found in [none, *(pod_obstacle(pod, events) for pod in pods)]:
        if found is not None:
            return found.sentence if found.advice else f"{found.message}; {see}"
    states = [f"{pod['metadata']['name']} is {pod_state(pod, None)}" for pod in pods]
    return f"{', '.join(states) or 'it has no pod'}; {see}"
