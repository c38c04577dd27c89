"""Checks of a release on a cluster: what keeps its pods from working, and what to do."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal

from seedbed.deploy.follow import learner_status
from seedbed.deploy.obstacles import Obstacle, ending, is_ready, pod_obstacle, refusal
from seedbed.deploy.pauses import resume_command
from seedbed.deploy.plan import (
    ApiObject,
    first_pod,
    hold_of,
    made_later,
    replicas_of,
    run_directory_of,
    template_of,
    workload_of,
    workloads,
)
from seedbed.deploy.programs import has_namespace
from seedbed.deploy.release_view import ReleaseView
from seedbed.deploy.releases import METER_SILENT_S
from seedbed.runtime.exit_codes import ConfigError, ExitCode
from seedbed.runtime.findings import Finding
from seedbed.runtime.formats import duration
from seedbed.runtime.text import counted, printable

# The alert SeedbedLastResortFailing has the same limit.
_LAST_RESORT_S = 1800.0
_SHOWN = 400  # characters of what a log says
_FAILED_CALL = re.compile(r"/\d+: (?P<cause>.+); trying (again|the others)")
_UNREACHABLE = (
    (
        r"DNS|resolv|lookup|Name or service",
        "let the actors reach the cluster's DNS, and the learner be ready: networkPolicy.dns",
    ),
    (
        r"UNAUTHENTICATED|PERMISSION_DENIED|certificate|handshake",
        "restart what has old tokens or certificates: kubectl rollout restart",
    ),
    (r".", "let the actors reach the learner's port 8470: see the namespace's network policies"),
)


def examine(view: ReleaseView) -> list[tuple[str, Finding]]:
    """Return the findings of every check by its name, in reading order.

    Args:
        view: The release.

    Raises:
        SeedbedError: CONFIG, there is no such release, or nothing of it may be read.
    """
    if not view.objects:
        raise _no_release(view)
    checks: dict[str, Callable[[ReleaseView], Iterator[Finding]]] = {
        "state": _state,
        "pods": _pods,
        "volumes": _claims,
        "names": _references,
        "learner": _reachable,
        "meter": _meter,
        "last resort": _last_resort,
    }
    found = [(name, finding) for name, check in checks.items() for finding in check(view)]
    return [*found, *(("rights", finding) for finding in _rights(view))]


def _no_release(view: ReleaseView) -> ConfigError:
    place = f"namespace {view.namespace}"
    if "pods" in view.forbidden:
        return ConfigError(
            f"nothing of {view.name} may be read in {place}: this account may not list "
            f"{', '.join(view.forbidden)}; ask for the role view there"
        )
    if not has_namespace(view.namespace):
        return ConfigError(f"there is no {place}: give -n NAMESPACE")
    others = list(view.others())
    here = sorted({name for where, name in others if where == view.namespace})
    there = sorted({where for where, name in others if name == view.name})
    near = get_close_matches(view.name, here, 3) or here
    advice = f"there are {', '.join(near)}" if near else "there is no release of Seedbed"
    if there:
        advice = f"it is in {', '.join(there)}: give -n {there[0]}"
    return ConfigError(f"there is no release {view.name} in {place}: {advice}")


def _state(view: ReleaseView) -> Iterator[Finding]:
    state = view.state
    if state is None:
        if "configmaps" not in view.forbidden and view.of("Deployment", "cost"):
            yield Finding(
                "fail",
                f"the ConfigMap of {view.name}'s state is not there: nothing counts its bill",
                "helm upgrade, which makes it again",
                ExitCode.DEPLOY,
            )
        return
    kind, reason = hold_of(view.objects, view.name) or ("", "")
    if kind == "finished":
        yield Finding("ok", f"finished: {printable(reason, _SHOWN)}")
    elif kind == "paused":
        yield Finding(
            "warn",
            f"paused: {printable(reason, _SHOWN)}",
            f"mend that, then: {resume_command(view.name, view.namespace)} (with paused: true in "
            "the values, helm upgrade with false)",
        )
    elif waiting := state.get("waiting"):
        yield Finding(
            "warn", f"the actors wait at zero for a learner: {printable(waiting, _SHOWN)}",
            "they come back by themselves once a learner has started",
        )  # fmt: skip
    elif ending_by := state.get("ending"):
        yield Finding("ok", f"ending: {printable(ending_by, _SHOWN)}")
    else:
        yield Finding("ok", "neither finished nor paused")


def _pods(view: ReleaseView) -> Iterator[Finding]:
    """Yield a finding for each workload without pods, and for each pod."""
    pods = [pod for pod in view.of("Pod") if not _is_of_last_resort(pod)]
    names = [str(pod["metadata"]["name"]) for pod in pods]
    later = made_later(view.objects)
    for item in workloads(view.objects):
        kind, name = str(item["kind"]), str(item["metadata"]["name"])
        wanted, mine = replicas_of(item), [pod for pod in names if pod.startswith(f"{name}-")]
        if len(mine) < wanted:
            obstacle = refusal(kind, name, names, view.events)
            yield _finding(
                obstacle or Obstacle(f"{kind} {name} has {len(mine)} of {counted(wanted, 'pod')}"),
                softly=obstacle is None,
            )
        elif not wanted:
            yield Finding("ok", f"{kind} {name} is at zero")
    ready = 0
    for pod in pods:
        ready += is_ready(pod)
        obstacle = pod_obstacle(pod, view.events, later)
        if obstacle is not None:
            # What has ended before and works now has been mended, or will end again.
            yield _finding(obstacle, softly=is_ready(pod) or not _lasts(obstacle))
        elif not is_ready(pod):
            yield _not_ready(pod, view)
        else:
            yield from _restarts(pod)
    if pods:
        level: Literal["ok", "warn"] = "ok" if ready == len(pods) else "warn"
        yield Finding(level, f"{ready} of {counted(len(pods), 'pod')} ready")


def _lasts(obstacle: Obstacle) -> bool:
    """Return whether a check fails for it: a node that has been ordered, or a turn, may come."""
    return obstacle.lasts or bool(obstacle.advice)


def _is_of_last_resort(pod: ApiObject) -> bool:
    labels = pod["metadata"].get("labels", {})
    return bool(labels.get("app.kubernetes.io/component") == "last-resort")


def _finding(obstacle: Obstacle, softly: bool) -> Finding:
    message = printable(obstacle.message, 1000)
    if softly:
        return Finding("warn", message, obstacle.advice)
    return Finding("fail", message, obstacle.advice, obstacle.code)


def _not_ready(pod: ApiObject, view: ReleaseView) -> Finding:
    name, phase = pod["metadata"]["name"], pod["status"].get("phase", "Pending")
    if phase == "Failed":
        reason, message = pod["status"].get("reason", "Failed"), pod["status"].get("message", "")
        return Finding("warn", f"{name} has ended: {reason} {message}".rstrip())
    event = view.events.newest(name, "Unhealthy", "BackOff", "Failed")
    why = f": {event['message']}" if event else ""
    return Finding(
        "warn", f"{name} is {phase.lower()}, and not ready yet{printable(why, _SHOWN)}",
        f"{' '.join(view.kubectl)} logs {name}",
    )  # fmt: skip


def _restarts(pod: ApiObject) -> Iterator[Finding]:
    for container in pod["status"].get("containerStatuses", []):
        if (count := container.get("restartCount", 0)) and (
            ended := container.get("lastState", {}).get("terminated")
        ):
            times = counted(count, "time")
            yield Finding(
                "warn",
                f"{container['name']} of {pod['metadata']['name']} has been restarted {times}: it "
                f"{printable(ending(ended), _SHOWN)}",
            )


def _claims(view: ReleaseView) -> Iterator[Finding]:
    for claim in view.of("PersistentVolumeClaim"):
        name, phase = claim["metadata"]["name"], claim["status"].get("phase", "Pending")
        if phase == "Bound":
            continue
        event = view.events.newest(name, "ProvisioningFailed", "FailedBinding")
        if phase == "Pending" and event is None:
            yield Finding("warn", f"claim {name} waits for its volume")
            continue
        asked = claim["spec"].get("storageClassName") or "the default one"
        why = printable(event["message"] if event else phase, _SHOWN)
        yield Finding(
            "fail", f"claim {name} of the StorageClass {asked} has no volume: {why}",
            "name a StorageClass that is there: kubectl get storageclass", ExitCode.DEPLOY,
        )  # fmt: skip


def _references(view: ReleaseView) -> Iterator[Finding]:
    """Yield the Secrets and ConfigMaps that pods mount and that are not there."""
    used: dict[str, str] = {}
    for item in workloads(view.objects):
        for volume in template_of(item)["spec"].get("volumes", []):
            if secret := volume.get("secret", {}).get("secretName"):
                used[f"secret/{secret}"] = str(item["metadata"]["name"])
            if config := volume.get("configMap", {}).get("name"):
                used[f"configmap/{config}"] = str(item["metadata"]["name"])
    missing = view.missing(list(used))
    later = made_later(view.objects)
    for name in missing:
        kind, _, plain = name.partition("/")
        shown = {"secret": "Secret", "configmap": "ConfigMap"}[kind]
        how = (
            "the meter makes tokens, cert-manager certificates: see their lines here"
            if plain in later
            else f"make the {shown}, or helm upgrade if it is the chart's"
        )
        yield Finding("fail", f"{shown} {plain}, which {used[name]} mounts, is not there", how,
                      ExitCode.DEPLOY)  # fmt: skip
    if used and not missing and not {"secrets", "configmaps"} & set(view.forbidden):
        yield Finding("ok", f"{len(used)} Secrets and ConfigMaps of the pods are there")


def _reachable(view: ReleaseView) -> Iterator[Finding]:
    """Yield whether the learner plays with its actors."""
    learner, actor = (workload_of(view.objects, name) for name in ("learner", "actor"))
    if learner is None or not replicas_of(learner):
        return
    status = learner_status(view.kubectl, first_pod(learner), run_directory_of(learner))
    sessions = status["numbers"]["sessions"] if status else 0
    if sessions:
        yield Finding("ok", f"{counted(sessions, 'group')} of environments play")
        return
    if actor is None or not replicas_of(actor):
        yield Finding("warn", "there is no actor", f"{' '.join(view.kubectl)} scale deployment")
        return
    for pod in view.of("Pod", "actor"):
        for line in reversed(view.log(str(pod["metadata"]["name"]), "actor")):
            if found := _FAILED_CALL.search(line):
                cause = printable(found["cause"], _SHOWN)
                advice = next(how for word, how in _UNREACHABLE if re.search(word, cause))
                message = f"{pod['metadata']['name']} does not reach the learner: {cause}"
                if any(map(is_ready, view.of("Pod", "learner"))):
                    yield Finding("fail", message, advice, ExitCode.LEARNER_UNREACHABLE)
                else:
                    yield Finding("warn", "no actor plays: no learner is ready yet")
                return
    yield Finding("warn", "no actor plays yet", f"{' '.join(view.kubectl)} logs deployment/"
                  f"{actor['metadata']['name']}")  # fmt: skip


def _meter(view: ReleaseView) -> Iterator[Finding]:
    meters, state = view.of("Pod", "cost"), view.state
    if state is None or "pods" in view.forbidden:
        return
    if not meters:
        has_left = "meterLeftAt" in state
        if not state.get("finished") and (has_left or view.of("Deployment", "cost")):
            what = "the meter has left after the end" if has_left else "no pod of the meter"
            yield Finding(
                "fail", f"{what}: nobody counts the bill, ends the run or pauses it",
                "helm upgrade, which makes it again" if has_left else
                f"{' '.join(view.kubectl)} scale deployment/{view.name}-cost --replicas=1",
                ExitCode.DEPLOY,
            )  # fmt: skip
        return
    name = str(meters[0]["metadata"]["name"])
    refused = [line for line in view.log(name, "cost")[-10:] if "ForbiddenException" in line]
    age_s = _age_s(state.get("unixTime"))
    if refused:
        what = printable(refused[-1].partition("meter: ")[2], 60)
        yield Finding(
            "fail", f"the API server refuses the meter: {what}",
            f"helm upgrade, which makes the Role and RoleBinding of {view.name} again, or ask who "
            "makes them", ExitCode.DEPLOY,
        )  # fmt: skip
    elif age_s is not None and age_s > METER_SILENT_S:
        yield Finding(
            "fail", f"the meter has saved nothing for {duration(age_s)}: no brake works but the "
            "last resort", f"{' '.join(view.kubectl)} logs {name}", ExitCode.DEPLOY,
        )  # fmt: skip
    elif age_s is None:
        yield Finding("warn", "the meter has not saved anything yet")
    else:
        yield Finding("ok", f"its bill is of {duration(age_s)} ago: "
                      f"${float(state.get('dollars', 0)):.4f}")  # fmt: skip


def _last_resort(view: ReleaseView) -> Iterator[Finding]:
    state = view.state
    for job in view.of("CronJob"):
        name = job["metadata"]["name"]
        if job["spec"].get("suspend") or state is None:
            continue
        age_s = _age_s(state.get("lastResort"))
        since = "made" if age_s is None else "worked"
        if age_s is None:
            made = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
            age_s = time.time() - made.timestamp()
        if age_s > _LAST_RESORT_S:
            yield Finding(
                "fail",
                f"CronJob {name} was {since} {duration(age_s)} ago, and has not worked since: "
                "nothing stops the release where its meter is dead",
                "docs/runbooks/SeedbedLastResortFailing.md", ExitCode.DEPLOY,
            )  # fmt: skip
        else:
            yield Finding("ok", f"CronJob {name} {since} {duration(age_s)} ago")


def _age_s(text: Any) -> float | None:
    try:
        return max(0.0, time.time() - float(text))
    except (TypeError, ValueError):
        return None


def _rights(view: ReleaseView) -> Iterator[Finding]:
    if view.forbidden:
        yield Finding(
            "warn",
            f"this account may not read {', '.join(view.forbidden)} in {view.namespace}: what "
            "depends on them is not checked",
            "ask for the role view there, and for pods/exec",
        )
