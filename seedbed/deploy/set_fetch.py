"""A set of a cluster as a folder of this machine: as a set of the laptop, or to be compared."""

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from seedbed.deploy.fetch import NotBegun, Run, Source, Transfer, fetch_run, unwritable
from seedbed.deploy.plan import ApiObject, template_of
from seedbed.deploy.programs import run
from seedbed.deploy.releases import SET_LABEL, Learner, Release
from seedbed.deploy.set_releases import ClusterSet
from seedbed.runs.layout import PASSING, learner_directories
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.files import atomic_write, read_object
from seedbed.runtime.text import counted
from seedbed.sets.folder import is_set, read_members

# Of the controller's volume: what serves its process, and what the file system makes.
_LEAVE = (*PASSING, "lock", "lock.[0-9]*", "lost+found")
# Checkpoints of runs without a volume: `compare` reads rows alone.
_NOT_COMPARED = ("*.safetensors",)
# In a folder that `fetch` has begun: of which set it is, and which runs came from their volumes.
_MARK = PurePosixPath("set/fetched.json")
# Of a run whose objects are gone: where the chart mounts its volume.
_MOUNT = "/runs"


def fetch_set(one: ClusterSet, directory: Path, print_line: Callable[[str], None]) -> None:
    """Bring a set into a folder, or what the folder lacks: a set as on this machine.

    The folder of the controller comes first: what varies, and the rows of every run. Then each run
    that has a volume comes whole, with its checkpoints and logs. The same call goes on after any
    end.

    Args:
        one: The set.
        directory: A folder that is empty, missing, or of an earlier call for the same set.
        print_line: Takes lines on what happens.

    Raises:
        SeedbedError: RUN_DIRECTORY, the folder has something else, or went on here; OUTPUT, it
            cannot be written; DEPLOY, a volume cannot be read, after all others.
    """
    mark = _take_folder(one, directory)
    whole = set(mark["volumes"])
    runs = _runs_with_volumes(one)
    _check_runs(one, directory)
    skip = [folder for name in runs if name in whole for folder in _here_whole(directory, name)]
    _transfer(one, directory, skip, print_line)
    failed = []
    for name, found in runs.items():
        place = directory / "runs" / name
        try:
            # What the controller has of a learner whose volume is gone is here already.
            several = found.is_several or bool(learner_directories(place))
            run_there = found._replace(is_several=several)
            fetch_run(run_there, place, print_line, is_new=False)
        except NotBegun:
            continue
        except SeedbedError as error:
            if error.code is not ExitCode.DEPLOY:
                raise
            print_line(f"{name} has its rows here, and nothing else: {error}")
            failed.append(name)
            continue
        whole.add(name)
        _write_mark(directory, one, sorted(whole))
    rows_only = [name for name in one.runs if name not in whole]
    begun = [name for name in rows_only if (directory / "runs" / name).is_dir()]
    if begun:
        print_line(
            f"{counted(len(begun), 'run')} with what the controller has, without a volume to read: "
            f"{', '.join(begun)}"
        )
    if failed:
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"{counted(len(failed), 'volume')} could not be read, of {', '.join(failed)}: the same "
            "command goes on",
        )


def copy_of_set(one: ClusterSet, print_line: Callable[[str], None]) -> Path:
    """Return a folder with what the controller of a set has by now, to be compared.

    It is kept in the cache of this user, so that the next call brings what is new.

    Args:
        one: The set.
        print_line: Takes lines on what happens.

    Raises:
        SeedbedError: OUTPUT, it cannot be written; DEPLOY, the volume cannot be read;
            RUN_DIRECTORY, no run has begun.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    folder = base / "seedbed" / "sets" / one.namespace / (one.uid or "set") / one.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    whole = _transfer(one, folder, (), print_line, _NOT_COMPARED)
    for path in folder.rglob("*"):
        if path.is_file() and path not in whole:  # of a run that has begun anew
            path.unlink(missing_ok=True)
    if not is_set(folder) or not any(member.has_begun for member in read_members(folder)):
        raise RunDirectoryError(
            f"no run of the set {one.name} in namespace {one.namespace} has begun: `seedbed status "
            f"{one.name} -n {one.namespace}` tells what it waits for"
        )
    return folder


def _transfer(
    one: ClusterSet,
    target: Path,
    skip: Sequence[str],
    print_line: Callable[[str], None],
    leave: Sequence[str] = (),
) -> frozenset[Path]:
    """Bring the folder of the controller; return the files that are there.

    Args:
        one: The set.
        target: The folder here.
        skip: Folders that stay there.
        print_line: Takes lines on what happens.
        leave: Patterns of names that stay there, too.
    """
    claim, workload = f"{one.name}-set", one.controller
    if workload is None:
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"the set {one.name} in namespace {one.namespace} has no controller (Deployment "
            f"{claim}): the command that has installed it makes it again",
        )
    spec = template_of(workload)["spec"]
    container = spec["containers"][0]
    volume = next(
        dict(x)
        for x in spec["volumes"]
        if x.get("persistentVolumeClaim", {}).get("claimName") == claim
    )
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    mount = mounts[volume["name"]]
    option = "--folder="
    given = (x.removeprefix(option) for x in container.get("args", []) if x.startswith(option))
    learner = Learner(0, workload, next(given, mount), "", volume, mount)
    release = Release(one.name, one.namespace, [workload])
    source = Source(release, learner, "", (*_LEAVE, *leave), skip)
    return Transfer(source, target, print_line, is_new=False).run()


def _here_whole(directory: Path, run: str) -> list[str]:
    """Return the folders of a run that has come from its volumes.

    The summary of several learners is on none of their volumes, and comes from the controller.
    """
    learners = learner_directories(directory / "runs" / run, earlier=True)
    return [f"runs/{run}/{one.name}" for one in learners] or [f"runs/{run}"]


def _runs_with_volumes(one: ClusterSet) -> dict[str, Run]:
    """Return the runs that have a volume, by name, whether they have other objects or not."""
    text = run(
        "kubectl", f"--namespace={one.namespace}", "get", "persistentvolumeclaims", "-o=json",
        f"-l={SET_LABEL}={one.name}",
    )  # fmt: skip
    claims: dict[str, list[str]] = {}
    for item in json.loads(text)["items"]:
        labels, name = item["metadata"]["labels"], item["metadata"]["name"]
        is_learners = labels.get("app.kubernetes.io/component", "learner") == "learner"
        if is_learners and item["status"].get("phase") == "Bound":
            claims.setdefault(labels.get("app.kubernetes.io/instance", ""), []).append(name)
    found = {}
    for name, names in claims.items():
        release = one.awake.get(name)
        if release is not None:
            learners = release.learners()
            owner = release.run
        else:
            release = Release(name, one.namespace, [])
            learners = [_learner_of_claim(one, name, x) for x in sorted(names, key=_rank)]
            owner = f"{one.namespace}/{name}/{name}"
        found[name] = Run(release, learners, owner, len(learners) > 1)
    return found


def _learner_of_claim(one: ClusterSet, name: str, claim: str) -> Learner:
    """Return a learner whose objects are gone; a pod that reads it is made as the controller's."""
    volume = {"name": "runs", "persistentVolumeClaim": {"claimName": claim}}
    workload = one.controller or ApiObject()
    return Learner(_rank(claim), workload, f"{_MOUNT}/{name}", "", volume, _MOUNT)


def _rank(claim: str) -> int:
    found = re.search(r"\d+$", claim)
    return int(found[0]) if found else 0


def _take_folder(one: ClusterSet, directory: Path) -> dict[str, list[str]]:
    """Mark the folder with the set; return the runs that have come whole into it.

    Raises:
        SeedbedError: RUN_DIRECTORY, it has something else; OUTPUT, it cannot be written.
    """
    if directory.exists() and not directory.is_dir():
        raise RunDirectoryError(f"{directory} is a file: name another DIR")
    if directory.is_dir() and any(directory.iterdir()):
        mark = read_object(directory / _MARK)
        if mark.get("set") != f"{one.namespace}/{one.name}":
            has = f"the set {mark['set']}" if "set" in mark else "something else"
            raise RunDirectoryError(
                f"{directory} has {has} in it, and not the set {one.namespace}/{one.name}: name an "
                "empty folder, or one that does not exist"
            )
        return {"volumes": list(mark.get("volumes", []))}
    _write_mark(directory, one, [])
    return {"volumes": []}


def _write_mark(directory: Path, one: ClusterSet, volumes: list[str]) -> None:
    file = directory / _MARK
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"set": f"{one.namespace}/{one.name}", "volumes": volumes}, indent=1)
        atomic_write(file, text + "\n")
    except OSError as error:
        raise unwritable(file, error) from error


def _check_runs(one: ClusterSet, directory: Path) -> None:
    """Refuse to replace the list of a set that has more runs here.

    Raises:
        SeedbedError: RUN_DIRECTORY.
    """
    there = one.runs
    more = (
        [x.name for x in read_members(directory) if x.name not in there]
        if (there and is_set(directory))
        else []
    )
    if more:
        raise RunDirectoryError(
            f"{directory} has runs that the set {one.namespace}/{one.name} has not, such as "
            f"{more[0]}: they were added here; name another DIR"
        )
