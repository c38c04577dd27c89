"""Names of all runs that a set on a cluster has or may get: the Roles of its release hold them.

The controller finds a run by its digest, whatever its name is: a run keeps the name that it got at
first, and a new one whose name is taken gets its digest into it. Runs that a command no longer
names stay.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from seedbed.deploy.plan import ApiObject, objects_of
from seedbed.deploy.programs import attempt
from seedbed.deploy.set_releases import ClusterSet
from seedbed.runtime.exit_codes import ConfigError, SeedbedError
from seedbed.sets.confirmation import CHOICE_FILE, read_choice
from seedbed.sets.folder import changes_of
from seedbed.sets.identity import digest
from seedbed.sets.resolve import ResolvedSet, resolve
from seedbed.sets.sweep import read_sweep

_LABEL = "app.kubernetes.io"
_STATE = "-state"


def objects_in(namespace: str, name: str) -> list[ApiObject]:
    """Return the ConfigMaps and, where they may be read, the Roles of a set on the cluster.

    Args:
        namespace: Of the set.
        name: Name of the set, which need not be installed.
    """
    found = []
    for kind in ("configmaps", "roles"):
        words = ("get", kind, "-o=json", f"-l={_LABEL}/name=seedbed-set")
        answer = attempt("kubectl", f"--namespace={namespace}", *words)
        if answer.returncode == 0:
            found += json.loads(answer.stdout)["items"]
    return _of(name, found)


def objects_of_file(file: Path, name: str) -> list[ApiObject]:
    """Return the objects of a set that `--render` has written before; none without the file.

    Raises:
        SeedbedError: CONFIG, the file cannot be read.
    """
    if not file.exists():
        return []
    try:
        return _of(name, objects_of(file.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{file} cannot be read, and has the names of the set's runs of before: {error}"
        ) from error


def _of(name: str, objects: Sequence[ApiObject]) -> list[ApiObject]:
    return [
        item
        for item in objects
        if item["metadata"].get("labels", {}).get(f"{_LABEL}/instance") == name
    ]


def names_of_runs(wanted: ResolvedSet, there: Sequence[ApiObject]) -> list[str]:
    """Return the names of a set's runs: those of a command, and those that follow from before.

    Args:
        wanted: The set.
        there: Objects of its release of before, or what is left of it.

    Returns:
        Those of `wanted` first, in its order.
    """
    names = dict.fromkeys(run.name for run in wanted.runs)
    before = _as_set(wanted.name, there)
    taken = {**dict.fromkeys(before.runs), **dict.fromkeys(_granted(wanted.name, there))}
    same = _runs_of(before, wanted) if taken else {}
    owners = {name: same.get(name, "") for name in taken}
    for run in wanted.runs:
        if owners.setdefault(run.name, run.digest) != run.digest:
            names[run.name_with_digest] = None
    return [*(names | taken)]


def check_settings(wanted: ResolvedSet, there: Sequence[ApiObject]) -> None:
    """Refuse other settings than those of a set on the cluster, whose runs keep theirs.

    Args:
        wanted: The set.
        there: Objects of its release of before; without its files nothing is compared.

    Raises:
        SeedbedError: RESUME_REFUSED, with the settings.
    """
    before = _resolved(_as_set(wanted.name, there))
    if before is not None:
        place = f"the set {wanted.name}"
        changes_of(before.base, wanted, before.sweep.axes, place, "set (--name)")


def others_of(wanted: ResolvedSet, there: Sequence[ApiObject]) -> list[str]:
    """Return the names of the runs that a set on the cluster has, and a command does not name.

    Args:
        wanted: The set, with the runs that confirm it.
        there: Objects of its release of before.
    """
    before = _as_set(wanted.name, there)
    digests = _runs_of(before, wanted) if before.runs else {}
    named = {"", *(run.digest for run in wanted.runs)}
    return [one for one in before.runs if digests.get(one, "") not in named]


def confirmed_before(wanted: ResolvedSet, there: Sequence[ApiObject]) -> ResolvedSet | None:
    """Return the runs by which a release of before confirms; None where there are none.

    Of other axes than today's there are none: what the set has of them stays as it is.

    Args:
        wanted: The set.
        there: Objects of its release of before.
    """
    text = _as_set(wanted.name, there).given.get(CHOICE_FILE)
    try:
        fresh = read_choice(wanted, text) if text else None
    except SeedbedError:
        return None
    is_same = fresh and all({*run.values} == {*wanted.sweep.axes} for run in fresh.runs)
    return fresh if is_same else None


def _as_set(name: str, objects: Sequence[ApiObject]) -> ClusterSet:
    return ClusterSet(name, "", [*objects], {}, {})


def _granted(name: str, objects: Sequence[ApiObject]) -> Iterator[str]:
    """Yield the names of runs whose states the Roles of a set hold."""
    for item in objects:
        for rule in item.get("rules") or []:
            for one in rule.get("resourceNames") or []:
                run = one.removesuffix(_STATE)
                if "configmaps" in rule["resources"] and run not in (one, f"{name}-set"):
                    yield run


def _runs_of(before: ClusterSet, wanted: ResolvedSet) -> dict[str, str]:
    """Return the digests of the runs of the release of before, by their names of then.

    They are of the settings that vary today. Of the runs of still earlier commands, and of all
    after an uninstall, they are those that the controller had, of what varied then.
    """
    digests = {name: row.get("digest", "") for name, row in before.runs.items()}
    if (every := _resolved(before)) is not None:
        digests |= {run.name: digest(run.experiment, wanted.sweep.axes) for run in every.runs}
    return digests


def _resolved(before: ClusterSet) -> ResolvedSet | None:
    """Return the set of the release of before, with the runs that confirm it.

    It is None where its files are gone, or are not read by this version.
    """
    texts = before.given
    if not {"sweep.yaml", "experiment.yaml"} <= texts.keys():
        return None
    with tempfile.TemporaryDirectory(prefix="seedbed-deploy-") as folder:
        for name in ("sweep.yaml", "experiment.yaml"):
            (Path(folder) / name).write_text(texts[name])
        try:
            found = resolve(read_sweep(Path(folder) / "sweep.yaml"), "the sweep of before")
        except SeedbedError:
            return None
        # Also resolved from these files.
        return found.joined(confirmed_before(found, before.objects))
