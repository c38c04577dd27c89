"""Releases of a namespace: their learners, their state, and their logs."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import yaml

from seedbed.deploy.plan import (
    ApiObject,
    helm_release,
    hold_of,
    learner_option,
    replicas_of,
    state_of,
    template_of,
)
from seedbed.deploy.programs import run
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

_LABEL = "app.kubernetes.io"
_OURS = f"-l={_LABEL}/name=seedbed"
_WORKLOADS = ("StatefulSet", "JobSet")
# From the last save of a meter on, which saves every 20 s: as the alert SeedbedMeterSilent has it.
METER_SILENT_S = 300.0
# How long a cluster has to answer a command.
TIMEOUT_S = 15
# Of the objects of a run that belongs to a set of runs.
SET_LABEL = "seedbed.dev/set"


class Learner(NamedTuple):
    """A learner of a release.

    Attributes:
        rank: Number of the learner, from 0.
        workload: Its StatefulSet or JobSet.
        run_dir: Its run directory in the pod.
        checkpoints: Where its checkpoints are, if not in the run directory: a path or a URL.
        volume: Its volume in the pod's specification, with a claim where it has one.
        mount: Path of that volume in the pod.
    """

    rank: int
    workload: ApiObject
    run_dir: str
    checkpoints: str
    volume: dict[str, Any]
    mount: str

    @property
    def claim(self) -> str:
        """Name of the claim; "" where the volume is no claim's."""
        return str(self.volume.get("persistentVolumeClaim", {}).get("claimName", ""))

    def is_pod(self, pod: ApiObject) -> bool:
        """Return whether a pod is this learner's; of several hosts, the first one's."""
        name, labels = self.workload["metadata"]["name"], pod["metadata"].get("labels", {})
        if self.workload["kind"] == "JobSet":
            index = labels.get("batch.kubernetes.io/job-completion-index")
            return index == "0" and bool(labels.get("jobset.sigs.k8s.io/jobset-name") == name)
        return bool(pod["metadata"]["name"] == f"{name}-{self.rank}")


class Release(NamedTuple):
    """A release, by the objects of its chart.

    Attributes:
        name: Name of its objects, and their label.
        namespace: Its namespace.
        objects: Its workloads and ConfigMaps.
    """

    name: str
    namespace: str
    objects: list[ApiObject]

    @property
    def state(self) -> dict[str, str] | None:
        """What the cost meter keeps; None in a release without one."""
        return state_of(self.objects, self.name)

    @property
    def hold(self) -> tuple[str, str] | None:
        """What holds it at zero, `finished` or `paused`, and the reason; None where it trains."""
        return hold_of(self.objects, self.name)

    def resuming(self) -> dict[str, int]:
        """Return the pods by component that are there, or that the meter is about to bring back.

        At zero, and held there, it is all 0.
        """
        there = {name: sum(map(replicas_of, self.workloads(name))) for name in ("learner", "actor")}
        if self.hold is None:
            before = json.loads((self.state or {}).get("resumeReplicas", "{}"))
            there = {name: number or before.get(name, 0) for name, number in there.items()}
        return there

    @property
    def of_set(self) -> str:
        """Name of the set whose run it is; empty for a release of its own."""
        return next((x["metadata"]["labels"].get(SET_LABEL, "") for x in self.objects), "")

    @property
    def label(self) -> str:
        """Selector of what belongs to it."""
        return f"{_LABEL}/instance={self.name}"

    def workloads(self, component: str) -> list[ApiObject]:
        """Return the workloads of a component, which has one or none but for JobSets."""
        return [
            item
            for item in self.objects
            if item["kind"] in (*_WORKLOADS, "Deployment")
            and item["metadata"]["labels"].get(f"{_LABEL}/component") == component
        ]

    def learners(self) -> list[Learner]:
        """Return the learners, by rank.

        Raises:
            SeedbedError: DEPLOY, the release has none.
        """
        found = sorted(self.workloads("learner"), key=lambda item: _last_number(item))
        if not found:
            raise SeedbedError(
                ExitCode.DEPLOY,
                f"release {self.name} in namespace {self.namespace} has no learner: wait for the "
                "end of its install, or install it again",
            )
        if found[0]["kind"] == "JobSet":
            return [_learner(item, rank) for rank, item in enumerate(found)]
        return [_learner(found[0], rank) for rank in range(self._learner_count())]

    @property
    def run(self) -> str:
        """NAMESPACE/RELEASE/RUN, which owns the run's directory."""
        (first, *_) = self.workloads("learner")
        return learner_option(first, "--owner=") or f"{self.namespace}/{self.name}/{self.name}"

    def _learner_count(self) -> int:
        """Return the number of learners by the experiment, for one at zero has no replicas."""
        for item in self.objects:
            if item["metadata"]["name"] == f"{self.name}-experiment":
                experiment = yaml.safe_load(item["data"]["experiment.yaml"]) or {}
                return int((experiment.get("gossip") or {}).get("replicas") or 1)
        return 1


def has_cluster() -> bool:
    """Return whether kubectl is here, with a cluster in its configuration."""
    files = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    there = any(Path(file).is_file() for file in files.split(os.pathsep) if file)
    return there and shutil.which("kubectl") is not None


def releases_of(namespace: str, timeout_s: int = TIMEOUT_S) -> list[Release]:
    """Return the releases of a namespace, by name.

    Args:
        namespace: The namespace; empty for all.
        timeout_s: How long the cluster has to answer.

    Raises:
        SeedbedError: DEPLOY, no cluster answers, or the account may not read there.
    """
    where = f"--namespace={namespace}" if namespace else "--all-namespaces"
    kinds = "statefulsets,deployments,configmaps"
    text = run("kubectl", where, f"--request-timeout={timeout_s}s", "get", kinds, "-o=json", _OURS)
    objects = [ApiObject(item) for item in json.loads(text)["items"]]
    found: dict[tuple[str, str], list[ApiObject]] = {}
    for item in objects:
        found.setdefault(_place(item), []).append(item)
    with_learner = {_place(item) for item in objects if _is_learner(item)}
    if found.keys() - with_learner:  # several hosts, where the cluster has that kind at all
        for item in _job_sets(where):
            found.setdefault(_place(item), []).append(item)
    return [Release(name, space, items) for (space, name), items in sorted(found.items())]


def find_release(name: str, namespace: str) -> Release:
    """Return the release of a name, of its objects or Helm's.

    Raises:
        SeedbedError: DEPLOY, there is none, or as `releases_of`.
    """
    releases = releases_of(namespace)
    if (found := release_named(name, releases)) is not None:
        return found
    raise no_such("release", name, namespace, [release.name for release in releases])


def release_named(name: str, releases: Sequence[Release]) -> Release | None:
    """Return the release of a name, of its objects or Helm's; None where none has it."""
    for release in releases:
        if name == release.name or name in map(helm_release, release.objects):
            return release
    return None


def no_such(kind: str, name: str, namespace: str, there: Sequence[str]) -> SeedbedError:
    """Return the error that no release, or no set, has a name.

    Args:
        kind: What was looked for.
        name: Its name.
        namespace: Where it was looked for.
        there: Names of those that are there.
    """
    return SeedbedError(
        ExitCode.DEPLOY,
        f"there is no {kind} {name} in namespace {namespace}; there: {', '.join(there) or 'none'}. "
        "Another namespace: -n NAMESPACE; what `helm uninstall` has left is read again after an "
        "install with --set paused=true",
    )


class Lines(NamedTuple):
    """Which lines of logs are wanted.

    Attributes:
        follows: Go on with new lines until the process is interrupted.
        tail: Last lines of each container; -1 is all.
    """

    follows: bool
    tail: int


def print_logs(release: Release, role: str, lines: Lines) -> None:
    """Print the logs of all pods of a role to stdout, each line with the pod's name.

    Args:
        release: The release.
        role: `learner`, `actor`, `replay` or `cost`.
        lines: Which lines.

    Raises:
        SeedbedError: DEPLOY, it has no such pod, or kubectl fails.
    """
    selector = f"{release.label},{_LABEL}/name=seedbed,{_LABEL}/component={role}"
    if not print_pods(release.namespace, selector, lines):
        ended = "it is {}: {}; ".format(*release.hold) if release.hold is not None else ""
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"release {release.name} has no pod of the {role}: {ended}`seedbed fetch "
            f"{release.name} DIR -n {release.namespace}` brings the learner's log",
        )


def print_pods(namespace: str, selector: str, lines: Lines) -> bool:
    """Print the logs of pods to stdout, each line with the pod's name.

    Args:
        namespace: Their namespace.
        selector: Labels that they have.
        lines: Which lines.

    Returns:
        Whether there is such a pod.

    Raises:
        SeedbedError: DEPLOY, kubectl fails.
    """
    kubectl, follow = ("kubectl", f"--namespace={namespace}"), str(lines.follows).lower()
    pods = run(*kubectl, "get", "pods", f"-l={selector}", "-o=name").split()
    if not pods:
        return False
    options = ("--prefix", "--all-containers", f"--tail={lines.tail}", f"--follow={follow}")
    most = f"--max-log-requests={8 * len(pods)}"  # containers, of which a pod has a few
    run(*kubectl, "logs", f"-l={selector}", *options, most, to_stdout=True)
    return True


def _job_sets(where: str) -> list[ApiObject]:
    try:
        text = run("kubectl", where, "get", "jobsets.jobset.x-k8s.io", "-o=json", _OURS)
    except SeedbedError as error:
        # An account that may not list them has none to look at.
        if "have a resource type" in str(error) or 'resource "jobsets"' in str(error):
            return []
        raise
    return [ApiObject(item) for item in json.loads(text)["items"]]


def _place(item: ApiObject) -> tuple[str, str]:
    """Return namespace and release of an object."""
    meta = item["metadata"]
    return meta["namespace"], meta["labels"][f"{_LABEL}/instance"]


def _is_learner(item: ApiObject) -> bool:
    component = item["metadata"]["labels"].get(f"{_LABEL}/component")
    return component == "learner" and item["kind"] in _WORKLOADS


def _last_number(item: ApiObject) -> int:
    found = re.search(r"\d+$", item["metadata"]["name"])
    return int(found[0]) if found else 0


def _learner(workload: ApiObject, rank: int) -> Learner:
    spec = template_of(workload)["spec"]
    volume = next((dict(x) for x in spec.get("volumes", []) if x["name"] == "runs"), {})
    name = workload["metadata"]["name"]
    for template in workload["spec"].get("volumeClaimTemplates", []):
        if template["metadata"]["name"] == "runs":
            claim = f"runs-{name}-{rank}"
            volume = {"name": "runs", "persistentVolumeClaim": {"claimName": claim}}
    run_dir, checkpoints = (
        learner_option(workload, option, rank)
        for option in ("--run-dir=", "--set=learner.checkpoint.directory=")
    )
    container = next(each for each in spec["containers"] if each["name"] == "learner")
    mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", [])}
    mount = mounts.get("runs", str(PurePosixPath(run_dir).parent))
    checkpoints = checkpoints.removeprefix("file://")
    return Learner(rank, workload, run_dir, checkpoints, volume, mount)
