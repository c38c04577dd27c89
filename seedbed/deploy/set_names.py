"""Names of all runs that a set on a cluster has or may get: the Roles of its release hold them.

The controller finds a run by its digest, whatever its name is: a run keeps the name that it got at
first, and a new one whose name is taken gets its digest into it. Runs that a command no longer
names stay.
"""

import json
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
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


class Before:
    """What earlier commands have left of a set on a cluster.

    Args:
        wanted: What the set is to be now.
        objects: Objects of its release of before, or what is left of it.

    Attributes:
        there: The set as it is there.
    """

    def __init__(self, wanted: ResolvedSet, objects: Sequence[ApiObject]) -> None:
        self._wanted, self._objects = wanted, objects
        self.there = ClusterSet(wanted.name, "", [*objects], {}, {})

    @cached_property
    def resolved(self) -> ResolvedSet | None:
        """The set of the newest command, with the runs that confirm it.

        It is None where its files are gone, or are not read by this version.
        """
        texts = self.there.given
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
            return found.joined(self._confirmed(found))

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the runs, by their names of then.

        They are of the settings that vary today. Of the runs of still earlier commands, and of all
        after an uninstall, they are those that the controller had, of what varied then.
        """
        found = {name: row.get("digest", "") for name, row in self.there.runs.items()}
        if self.resolved is not None:
            axes = self._wanted.sweep.axes
            found |= {run.name: digest(run.experiment, axes) for run in self.resolved.runs}
        return found

    @property
    def names(self) -> dict[str, None]:
        """Names of runs that the set has, or whose states its Roles hold."""
        granted = _granted(self.there.name, self._objects)
        return {**dict.fromkeys(self.there.runs), **dict.fromkeys(granted)}

    @property
    def confirmed(self) -> ResolvedSet | None:
        """The runs by which the release confirms; None where there are none.

        Of other axes than today's there are none: what the set has of them stays as it is.
        """
        return self._confirmed(self._wanted)

    def _confirmed(self, wanted: ResolvedSet) -> ResolvedSet | None:
        text = self.there.given.get(CHOICE_FILE)
        try:
            fresh = read_choice(wanted, text) if text else None
        except SeedbedError:
            return None
        is_same = fresh and all({*run.values} == {*wanted.sweep.axes} for run in fresh.runs)
        return fresh if is_same else None


def names_of_runs(wanted: ResolvedSet, before: Before) -> list[str]:
    """Return the names of a set's runs: those of a command, and those that follow from before.

    Args:
        wanted: The set, with the runs that confirm it.
        before: What is there of it.

    Returns:
        Those of `wanted` first, in its order.
    """
    names = dict.fromkeys(run.name for run in wanted.runs)
    taken = before.names
    same = before.digests if taken else {}
    owners = {name: same.get(name, "") for name in taken}
    for run in wanted.runs:
        if owners.setdefault(run.name, run.digest) != run.digest:
            names[run.name_with_digest] = None
    return [*(names | taken)]


def check_settings(wanted: ResolvedSet, before: Before) -> None:
    """Refuse other settings than those of a set on the cluster, whose runs keep theirs.

    Args:
        wanted: The set.
        before: What is there of it; without its files nothing is compared.

    Raises:
        SeedbedError: RESUME_REFUSED, with the settings.
    """
    if (old := before.resolved) is not None:
        changes_of(old.base, wanted, old.sweep.axes, f"the set {wanted.name}", "set (--name)")


def others_of(wanted: ResolvedSet, before: Before) -> list[str]:
    """Return the names of the runs that a set on the cluster has, and a command does not name.

    Args:
        wanted: The set, with the runs that confirm it.
        before: What is there of it.
    """
    runs = before.there.runs
    digests = before.digests if runs else {}
    named = {"", *(run.digest for run in wanted.runs)}
    return [one for one in runs if digests.get(one, "") not in named]


def _granted(name: str, objects: Sequence[ApiObject]) -> Iterator[str]:
    """Yield the names of runs whose states the Roles of a set hold."""
    for item in objects:
        for rule in item.get("rules") or []:
            for one in rule.get("resourceNames") or []:
                run = one.removesuffix(_STATE)
                if "configmaps" in rule["resources"] and run not in (one, f"{name}-set"):
                    yield run
