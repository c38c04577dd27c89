"""The shapes of a set's runs: the chart `seedbed` rendered once for each."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from seedbed.config.keys import is_within, sections
from seedbed.config.load import dump_experiment, parse_experiment, put
from seedbed.deploy.chart_values import merged, values_file, values_of
from seedbed.deploy.plan import ApiObject, objects_of
from seedbed.deploy.programs import run as call
from seedbed.runtime.exit_codes import ConfigError, SeedbedError
from seedbed.runtime.text import counted
from seedbed.sets.needs import Limits, needs_of
from seedbed.sets.resolve import ResolvedSet, Run, renamed
from seedbed.sets.run_objects import PLACEHOLDER, SHAPE_KEYS, shape_of

# What the chart refuses by, beside the keys of a shape; a test compares both with its templates.
CHECKED_KEYS = (
    "actor.envs_per_group",
    "actor.groups",
    "agent",
    "environment.atari",
    "environment.id",
    "learner.batch_size",
    "learner.deterministic",
    "learner.device",
    "learner.devices",
    "learner.network",
    "learner.network_options",
    "learner.precision",
    "learner.replay.min_size",
    "learner.unroll_length",
)
MOST_SHAPES = 64  # a rendering takes a third of a second
_MOST_VALUES = 8  # of a key of CHECKED_KEYS that are rendered
_COMPONENT = "app.kubernetes.io/component"
# Of the set's release, and with the names of all its runs there.
_OF_THE_SET = ("ServiceAccount", "Role", "RoleBinding")
# Group and resource of what a controller makes.
RESOURCES = {
    "Certificate": ("cert-manager.io", "certificates"),
    "ConfigMap": ("", "configmaps"),
    "CronJob": ("batch", "cronjobs"),
    "Deployment": ("apps", "deployments"),
    "Issuer": ("cert-manager.io", "issuers"),
    "JobSet": ("jobset.x-k8s.io", "jobsets"),
    "NetworkPolicy": ("networking.k8s.io", "networkpolicies"),
    "PersistentVolumeClaim": ("", "persistentvolumeclaims"),
    "PodDisruptionBudget": ("policy", "poddisruptionbudgets"),
    "PodMonitor": ("monitoring.coreos.com", "podmonitors"),
    "PodMonitoring": ("monitoring.googleapis.com", "podmonitorings"),
    "ScaledObject": ("keda.sh", "scaledobjects"),
    "Service": ("", "services"),
    "StatefulSet": ("apps", "statefulsets"),
}


@dataclass(frozen=True)
class Shape:
    """What the chart renders for some runs of a set.

    Attributes:
        key: Value of `shape_of` of these runs.
        runs: The runs.
        objects: Objects of one run, with `PLACEHOLDER` for its name.
        rules: Rules of the Role of its cost meter, with the placeholder.
        accounts: Annotations of the service accounts of its roles.
    """

    key: str
    runs: Sequence[Run]
    objects: list[ApiObject]
    rules: Sequence[Mapping[str, Any]]
    accounts: Mapping[str, Mapping[str, str]]

    @property
    def takes(self) -> Limits:
        """What one of these runs has at once."""
        return needs_of(self.objects)


class Chart(NamedTuple):
    """The chart of the runs, and its values.

    Attributes:
        place: A folder, or an address.
        namespace: Of the set.
        profiles: Files of values.
        given: Values of the command, without those of the experiment.
    """

    place: str
    namespace: str
    profiles: Sequence[str]
    given: Mapping[str, Any]

    def values(self) -> dict[str, Any]:
        """Return the values of the profiles with those of the command over them."""
        found: dict[str, Any] = {}
        for file in self.profiles:
            found = merged(found, yaml.safe_load(Path(file).read_text()) or {})
        return merged(found, self.given)

    def settings(self) -> dict[str, Any]:
        """Return the settings of the experiment that the profiles name, by key."""
        return dict(_flat(self.values().get("experiment") or {}))


def _flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    known = dict(sections())
    for key, value in tree.items():
        here = f"{path}.{key}".lstrip(".")
        if here in known and isinstance(value, Mapping):
            yield from _flat(value, here)
        else:
            yield here, value


def group_by_shape(wanted: ResolvedSet) -> dict[str, list[Run]]:
    """Return the runs of each shape.

    Raises:
        SeedbedError: CONFIG, there are too many shapes.
    """
    groups: dict[str, list[Run]] = {}
    for run in wanted.runs:
        groups.setdefault(shape_of(run.experiment), []).append(run)
    if len(groups) > MOST_SHAPES:
        axes = [key for key in wanted.sweep.axes if _is_of(key, SHAPE_KEYS)]
        raise ConfigError(
            f"{counted(len(groups), 'shape')} of runs, and a set on a cluster has at most "
            f"{MOST_SHAPES}: take fewer values of {', '.join(axes)}, of which each has objects of "
            "its own"
        )
    return groups


def _check_learners(chart: Chart, run: Run) -> None:
    """Refuse values by which a run has other learners than its experiment in the set's folder says.

    Raises:
        SeedbedError: CONFIG, with both.
    """
    given, own = chart.values().get("learner") or {}, run.experiment.gossip
    for key, own_value in (("replicas", own.replicas), ("topology", own.topology)):
        if (value := given.get(key)) not in (None, own_value):
            raise ConfigError(
                f"learner.{key} is {value}, and gossip.{key} of {run.name} is {own_value}: in a "
                f"set the experiment of each run says it; say --set experiment.gossip.{key}={value}"
            )


def _is_of(key: str, known: Sequence[str]) -> bool:
    return any(is_within(key, one) or is_within(one, key) for one in known)


def render_shape(
    wanted: ResolvedSet,
    key: str,
    runs: Sequence[Run],
    chart: Chart,
    folder: Path,
    images: Mapping[str, Any],
) -> Shape:
    """Render the chart for the runs of a shape, and check it for the others.

    Args:
        wanted: The set.
        key: The shape.
        runs: Runs of it.
        chart: The chart and its values.
        folder: For files of values.
        images: Values that name images.

    Raises:
        SeedbedError: CONFIG, the chart refuses the values of a run, or renders what a controller
            does not make; DEPLOY, Helm failed.
    """
    for run in runs:
        _check_learners(chart, run)
    found = [_render(wanted, run, chart, folder, images) for run in _to_check(wanted, runs)]
    objects, rules, accounts = [], list[Mapping[str, Any]](), dict[str, Mapping[str, str]]()
    for item in found[0]:
        name, kind = item["metadata"]["name"], item["kind"]
        component = item["metadata"].get("labels", {}).get(_COMPONENT)
        if component == "test":
            continue
        if kind == "ServiceAccount":
            role = name.removeprefix(f"{wanted.name}-set-")
            accounts[role] = item["metadata"].get("annotations") or {}
        elif kind == "Role":
            rules += item["rules"]
        elif kind not in _OF_THE_SET:
            if kind not in RESOURCES:
                raise ConfigError(
                    f"{kind} {name.replace(PLACEHOLDER, 'of a run')}: the controller of a set does "
                    "not make this kind of object: leave out the value that asks for it"
                    + (" (cost.readNodes)" if kind.startswith("ClusterRole") else "")
                )
            objects.append(item)
    return Shape(key, runs, objects, rules, accounts)


def _to_check(wanted: ResolvedSet, runs: Sequence[Run]) -> list[Run]:
    """Return the first run, and others with each value of the axes that the chart refuses by."""
    found = [runs[0]]
    for axis in wanted.sweep.axes:
        if _is_of(axis, CHECKED_KEYS):
            by_value = {json.dumps(run.values[axis], sort_keys=True): run for run in runs}
            several = sorted(by_value.values(), key=lambda run: _order(run.values[axis]))
            if len(several) > _MOST_VALUES:
                half = _MOST_VALUES // 2
                several = [*several[:half], *several[-half:]]
            seen = {json.dumps(run.values[axis], sort_keys=True) for run in found}
            found += [run for run in several if json.dumps(run.values[axis]) not in seen]
    return found


def _order(value: Any) -> tuple[float, str]:
    is_number = isinstance(value, int | float)
    return (float(value) if is_number else 0.0, json.dumps(value, sort_keys=True))


def _render(
    wanted: ResolvedSet, run: Run, chart: Chart, folder: Path, images: Mapping[str, Any]
) -> list[ApiObject]:
    one = renamed(run, PLACEHOLDER, wanted.name)
    text = dump_experiment(one.experiment, named_only=True)
    layers = {
        "experiment": values_of(one.experiment, text, chart.values()),
        "images": images,
        "given": {key: value for key, value in chart.given.items() if key != "experiment"},
        "set": _values_of_the_set(wanted.name, chart, dict(_flat(yaml.safe_load(text)))),
    }
    files = {name: values_file(folder, name, values) for name, values in layers.items()}
    profiles = [f"--values={file}" for file in chart.profiles]
    options = (f"--namespace={chart.namespace}", files["experiment"], *profiles)
    more = (files["images"], files["given"], files["set"], "--kube-version=1.33.0")
    try:
        manifest = call("helm", "template", PLACEHOLDER, chart.place, *options, *more)
        objects = objects_of(manifest)
        for item in objects:
            if (written := (item.get("data") or {}).get("experiment.yaml")) is not None:
                parse_experiment(written, (), f"the experiment of {run.name}")
    except SeedbedError as error:
        raise SeedbedError(error.code, str(error).replace(PLACEHOLDER, run.name)) from error
    return objects


def existing_secret(values: Mapping[str, Any]) -> str:
    """Return the Secret with tokens that values of the chart name; "" where they name none."""
    return str((values.get("auth") or {}).get("existingSecret") or "")


def _values_of_the_set(name: str, chart: Chart, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that a run of a set has, whatever others say.

    Args:
        name: Name of the set.
        chart: The chart and its values.
        own: Settings of the run by key.
    """
    values = chart.values()
    wanted: dict[str, Any] = {
        "set": name,
        "auth": {"existingSecret": existing_secret(values) or f"{name}-set-auth"},
        "cost": {"ttlSecondsAfterFinished": 0},
        # Its policy is an object of the whole cluster, which no controller of a set may make.
        "learner": {"scaleGuard": False},
    }
    has_roles = (values.get("rbac") or {}).get("create", True)
    for role, account in (("learner",) * 2, ("actor",) * 2, ("cost",) * 2, ("replay", "actor")):
        shared, of_role = values.get("pod") or {}, (values.get(role) or {}).get("pod") or {}
        given = merged(shared, of_role).get("serviceAccount") or {}
        if given.get("create", True) and (has_roles or role != "cost"):
            mine = {"pod": {"serviceAccount": {"name": f"{name}-set-{account}"}}}
            wanted = merged(wanted, {role: mine})
    # The runs' own settings are above those of a profile, which the set has taken over.
    for key in chart.settings():
        if key in own:
            put(wanted, f"experiment.{key}", own[key], "the profile")
    return wanted
