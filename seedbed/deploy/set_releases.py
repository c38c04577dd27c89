"""Sets of runs on a cluster, by the objects of their releases: their state and their runs."""

import base64
import gzip
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

from seedbed.deploy.plan import ApiObject, helm_release
from seedbed.deploy.programs import attempt, run
from seedbed.deploy.releases import (
    METER_SILENT_S,
    SET_LABEL,
    TIMEOUT_S,
    Release,
    has_cluster,
    no_such,
    release_named,
    releases_of,
)
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

_LABEL = "app.kubernetes.io"
# How long a cluster has to tell whether it has a set with the name of a path.
_TIMEOUT_OF_PATH_S = 5
# What the reasons begin with by which a controller ends runs: a limit, a bound, a pause of the set.
_BY_CONTROLLER = "set: "
# States of a run that trains no further frame.
OVER = ("finished", "failed", "diverged", "pruned")


class RunEntry(TypedDict, total=False):
    """What the controller of a set keeps of a run."""

    state: str
    reason: str
    frames: int | None
    goal: int | None  # emulator frames at which it ends
    score: float | None  # mean return of the last evaluation
    dollars: float | None
    seconds_left: float | None
    failures: int  # of its own
    preemptions: int  # pods of its learner that a drain, an eviction or a lost node has taken
    digest: str  # of its settings, as the folder of the set has it


class ClusterSet(NamedTuple):
    """A set of runs on a cluster.

    Attributes:
        name: Name of its release and of its objects.
        namespace: Its namespace.
        objects: Its Deployment and its ConfigMaps.
        awake: Its runs that have a learner, by name.
        resting: Those that have a state and no learner, by name.
    """

    name: str
    namespace: str
    objects: list[ApiObject]
    awake: dict[str, Release]
    resting: dict[str, Release]

    @property
    def state(self) -> dict[str, str]:
        """What the controller and people have written; {} before the controller has begun."""
        return dict(self._state_object.get("data") or {})

    @property
    def runs(self) -> dict[str, RunEntry]:
        """Every run by name, as the controller has it; {} before the controller has begun.

        A pause that it has not seen yet is one already.
        """
        packed = (self._state_object.get("binaryData") or {}).get("runs.json.gz")
        runs = dict(json.loads(gzip.decompress(base64.b64decode(packed)))) if packed else {}
        return {name: self._with_pause(name, entry) for name, entry in runs.items()}

    def _with_pause(self, name: str, entry: RunEntry) -> RunEntry:
        release = self.awake.get(name)
        by_person = self.state.get(f"paused.{name}", pause_of(release) if release else "")
        if not by_person or entry["state"] in OVER:
            return entry
        return {**entry, "state": "paused", "reason": by_person, "seconds_left": None}

    @property
    def given(self) -> dict[str, str]:
        """What its installation has given: `sweep.yaml`, `experiment.yaml`, `limits.json`."""
        found = self._named("ConfigMap", f"{self.name}-set") or ApiObject()
        return dict(found.get("data") or {})

    @property
    def controller(self) -> ApiObject | None:
        """Deployment of the controller; None where somebody has removed it."""
        return self._named("Deployment", f"{self.name}-set")

    @property
    def uid(self) -> str:
        """What tells this installation from an earlier one of the same name."""
        found = self._named("ConfigMap", f"{self.name}-set") or ApiObject()
        return str(found.get("metadata", {}).get("uid", ""))

    @property
    def controllers(self) -> str:
        """Selector of the pods of the controller, of which there is one or none."""
        return (
            f"{_LABEL}/name=seedbed-set,{_LABEL}/instance={self.name},{_LABEL}/component=controller"
        )

    @property
    def paused(self) -> str:
        """Reason of a person who has paused the whole set; empty while it is not."""
        return self.state.get("paused", "")

    @property
    def is_over(self) -> bool:
        """Whether the set has runs, and none of them trains a further frame."""
        runs = self.runs
        return bool(runs) and all(run["state"] in OVER for run in runs.values())

    def is_silent(self) -> bool:
        """Whether the controller has saved nothing for as long as makes a meter silent."""
        at = self.state.get("unixTime")
        return at is not None and time.time() - float(at) > METER_SILENT_S

    def entry(self, name: str) -> RunEntry:
        """Return what is kept of a run.

        Raises:
            SeedbedError: DEPLOY, the set has no such run.
        """
        runs = self.runs
        if name not in runs and name not in self.awake:
            raise SeedbedError(
                ExitCode.DEPLOY,
                f"the set {self.name} in namespace {self.namespace} has no run {name}: `seedbed "
                f"list {self.name} -n {self.namespace}` names them",
            )
        return runs.get(name) or {"state": "starting"}

    @property
    def _state_object(self) -> ApiObject:
        return self._named("ConfigMap", f"{self.name}-set-state") or ApiObject()

    def _named(self, kind: str, name: str) -> ApiObject | None:
        found = (x for x in self.objects if (x["kind"], x["metadata"]["name"]) == (kind, name))
        return next(found, None)


class Found(NamedTuple):
    """What is in a namespace.

    Attributes:
        sets: Its sets, with their runs.
        releases: Its releases that are no run of these sets.
    """

    sets: list[ClusterSet]
    releases: list[Release]


def everything_in(namespace: str, timeout_s: int = TIMEOUT_S) -> Found:
    """Return the sets and the other releases of a namespace.

    Args:
        namespace: The namespace; empty for all.
        timeout_s: How long the cluster has to answer.

    Raises:
        SeedbedError: As `releases_of`.
    """
    where = f"--namespace={namespace}" if namespace else "--all-namespaces"
    releases = releases_of(namespace, timeout_s)
    words = ("get", "deployments,configmaps", "-o=json", f"-l={_LABEL}/name=seedbed-set")
    text = run("kubectl", where, f"--request-timeout={timeout_s}s", *words)
    by_place: dict[tuple[str, str], list[ApiObject]] = {}
    for item in json.loads(text)["items"]:
        meta = item["metadata"]
        place = meta["namespace"], meta["labels"].get(f"{_LABEL}/instance", "")
        by_place.setdefault(place, []).append(ApiObject(item))
    sets = []
    for (space, name), objects in sorted(by_place.items()):
        if any(x["metadata"]["name"] == f"{name}-set" for x in objects):
            ours = [x for x in releases if (x.namespace, x.of_set) == (space, name)]
            awake = {x.name: x for x in ours if x.workloads("learner")}
            resting = {x.name: x for x in ours if x.name not in awake}
            sets.append(ClusterSet(name, space, objects, awake, resting))
    places = {(one.namespace, one.name) for one in sets}
    return Found(sets, [x for x in releases if (x.namespace, x.of_set) not in places])


def find(name: str, namespace: str, timeout_s: int = TIMEOUT_S) -> ClusterSet | Release:
    """Return the set or the release of a name; a run of a set is a release, too.

    Args:
        name: The name.
        namespace: Where it is.
        timeout_s: How long the cluster has to answer.

    Raises:
        SeedbedError: DEPLOY, there is none, or as `releases_of`; USAGE, there are both.
    """
    found = everything_in(namespace, timeout_s)
    of_sets = [run for one in found.sets for run in {**one.resting, **one.awake}.values()]
    the_set = next((x for x in found.sets if name == x.name or name in _helm_names(x)), None)
    release = release_named(name, [*found.releases, *of_sets])
    if the_set is not None and release is not None:
        raise SeedbedError(
            ExitCode.USAGE,
            f"{name} is a set and a release in namespace {namespace}: install one of them under "
            "another name",
        )
    if (one := the_set or release) is None:
        there = [*(x.name for x in found.releases), *(f"the set {x.name}" for x in found.sets)]
        raise no_such("release", name, namespace, there)
    return one


def find_set(name: str, namespace: str) -> ClusterSet:
    """Return the set of a name.

    Raises:
        SeedbedError: As `find`; USAGE, the name is a release's.
    """
    found = find(name, namespace)
    if isinstance(found, ClusterSet):
        return found
    if found.of_set:
        raise SeedbedError(
            ExitCode.USAGE,
            f"{name} in namespace {namespace} is a run of the set {found.of_set}, which has the "
            f"rows of all its runs: `seedbed status {found.of_set} -n {namespace}`, or `compare`",
        )
    raise SeedbedError(
        ExitCode.USAGE,
        f"{name} in namespace {namespace} is a release and no set: `seedbed list -n {namespace}` "
        f"shows it, `seedbed check release {name} -n {namespace}` names what keeps it from "
        f"working, and `seedbed fetch {name} DIR -n {namespace}` brings it here",
    )


def set_there(name: str, namespace: str) -> ClusterSet | None:
    """Return the set of a name; None where there is none.

    Raises:
        SeedbedError: As `releases_of`.
    """
    return next((one for one in everything_in(namespace).sets if one.name == name), None)


def set_of_run(release: Release) -> ClusterSet | None:
    """Return the set whose run a release is; None for one of its own, or whose set is gone.

    Raises:
        SeedbedError: As `releases_of`.
    """
    return set_there(release.of_set, release.namespace) if release.of_set else None


def is_on_cluster(text: str, namespace: str | None) -> bool:
    """Return whether a word of the command line means a release or a set, not a path.

    Args:
        text: The word: a path where it has a slash or exists, unless a namespace is given.
        namespace: The namespace that the command line gives.

    Raises:
        SeedbedError: USAGE, it is the name of both.
    """
    if namespace is not None:
        return True
    if "/" in text or text in (".", ".."):
        return False
    if not Path(text).exists():
        return True
    if not has_cluster():
        return False
    try:
        found = find(text, "default", _TIMEOUT_OF_PATH_S)
    except SeedbedError:  # no such release, or no cluster at all
        return False
    kind = "set" if isinstance(found, ClusterSet) else "release"
    raise SeedbedError(
        ExitCode.USAGE,
        f"{text} is a folder here and a {kind} in namespace default: name the folder ./{text}, "
        f"or the {kind} {text} -n default",
    )


class LeftVolumes(NamedTuple):
    """Volumes of the runs of a set that is not there any more.

    Attributes:
        name: Name of the set.
        namespace: Its namespace.
        claims: Names of their claims; those of runs that are there still are left out.
        folder: Claim of the controller, with the rows of all runs; empty where it is gone.
        is_all: Whether none of its runs is there.
    """

    name: str
    namespace: str
    claims: list[str]
    folder: str
    is_all: bool

    @property
    def remove(self) -> str:
        """The commands that remove them."""
        runs = f"-l {SET_LABEL}={self.name}" if self.is_all else " ".join(self.claims)
        which = [runs] * bool(self.claims) + [self.folder] * bool(self.folder)
        return " && ".join(f"kubectl -n {self.namespace} delete pvc {one}" for one in which)


def left_volumes(namespace: str, found: Found) -> list[LeftVolumes]:
    """Return what is left of the runs of sets that are gone; nothing where it may not be read.

    Args:
        namespace: The namespace; empty for all.
        found: What is there.
    """
    where = f"--namespace={namespace}" if namespace else "--all-namespaces"
    ours = f"-l={_LABEL}/name in (seedbed,seedbed-set)"
    words = ("get", "persistentvolumeclaims", "-o=json", ours)
    done = attempt("kubectl", where, f"--request-timeout={TIMEOUT_S}s", *words)
    if done.returncode:
        return []
    sets = {(one.namespace, one.name) for one in found.sets}
    there = [one for one in found.releases if one.workloads("learner")]
    runs = {(one.namespace, one.name): one.of_set for one in there}
    left: dict[tuple[str, str], list[str]] = {}
    folders: dict[tuple[str, str], str] = {}
    for item in json.loads(done.stdout)["items"]:
        meta = item["metadata"]
        space, labels = meta["namespace"], meta["labels"]
        instance = labels.get(f"{_LABEL}/instance", "")
        if labels.get(f"{_LABEL}/name") == "seedbed-set" and (space, instance) not in sets:
            folders[space, instance] = meta["name"]
        place = space, labels.get(SET_LABEL, "")
        if place[1] and place not in sets and (space, instance) not in runs:
            left.setdefault(place, []).append(meta["name"])
    awake = {(space, of_set) for (space, _), of_set in runs.items()}
    return [
        LeftVolumes(
            place[1],
            place[0],
            sorted(left.get(place, [])),
            folders.get(place, ""),
            place not in awake,
        )
        for place in sorted({*left, *folders})
    ]


def pause_of(release: Release) -> str:
    """Return why a person or its meter has paused a run; empty where none has."""
    kind, reason = release.hold or ("", "")
    return reason if kind == "paused" and not reason.startswith(_BY_CONTROLLER) else ""


def states_in_words(runs: Mapping[str, RunEntry]) -> str:
    """Return how many runs are in each state: `3 of 8 finished, 2 training, 3 waiting`."""
    counts = Counter(one["state"] for one in runs.values())
    words = [f"{counts.pop('finished', 0)} of {len(runs)} finished"]
    rest = sorted(counts, key=lambda state: (state in OVER, state))
    return ", ".join([*words, *(f"{counts[state]} {state}" for state in rest)])


def seconds_left(runs: Sequence[RunEntry]) -> float | None:
    """Return the time to the end of a set; None where the end of one of its runs is unknown.

    The runs that wait follow in the places of those that train now.
    """
    going = [one for one in runs if one["state"] not in (*OVER, "at its rung")]
    left = [one.get("seconds_left") for one in going]
    known = [one for one in left if one is not None]
    places = sum(one["state"] not in ("waiting", "paused") for one in going)
    if not going or len(known) < len(left) or not places:
        return None
    return max(*known, sum(known) / places)


def _helm_names(one: ClusterSet) -> set[str]:
    return {name for item in one.objects if (name := helm_release(item))}
