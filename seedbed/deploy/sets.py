"""A set of runs as one release of the chart `seedbed-set`: its plan, values and installation."""

import base64
import gzip
import itertools
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from seedbed.config.load import dump_experiment
from seedbed.deploy.chart_values import SET_CHART, merged, values_file
from seedbed.deploy.plan import (
    ApiObject,
    Rates,
    helm_release,
    objects_of,
    rates,
    replicas_of,
    template_of,
    workload_of,
)
from seedbed.deploy.programs import attempt, has_namespace
from seedbed.deploy.programs import run as call
from seedbed.deploy.set_releases import everything_in
from seedbed.deploy.set_shapes import RESOURCES, Chart, Shape, existing_secret
from seedbed.deploy.sizes import LIMIT_BYTES, Sizes, check_sizes
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.runtime.formats import money
from seedbed.runtime.text import counted
from seedbed.sets.folder import sweep_text
from seedbed.sets.needs import Limits
from seedbed.sets.resolve import ResolvedSet

_MONTH_HOURS = 730
# Kinds that a set's release has beside those of runs.
_OF_A_SET = {
    "Role": ("rbac.authorization.k8s.io", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io", "rolebindings"),
    "ServiceAccount": ("", "serviceaccounts"),
}
_SHARED = ("extraLabels", "metrics")  # values that both charts have
_CURE = (
    "take fewer runs, shorter values, or fewer values of keys of which each has objects of its own"
)


@dataclass(frozen=True)
class SetRelease:
    """What is installed of a set.

    Attributes:
        name: Name of the release.
        chart: The chart of the runs.
        values: Values of the chart `seedbed-set`.
        manifest: That chart, rendered.
        objects: Its objects.
        sizes: Bytes of the release.
    """

    name: str
    chart: Chart
    values: Mapping[str, Any]
    manifest: str
    objects: list[ApiObject]
    sizes: Sizes


def check_limits(shapes: Sequence[Shape], limits: Limits) -> None:
    """Refuse a run that alone exceeds a limit, so that it would wait for ever.

    Raises:
        SeedbedError: CONFIG, with both numbers.
    """
    for shape in shapes:
        for what, most in limits._asdict().items():
            taken = getattr(shape.takes, what)
            if 0 < most < taken:
                raise ConfigError(
                    f"--max-{what} is {most}, and {shape.runs[0].name} alone has {taken} {what}: "
                    f"it would never start; say --max-{what} {taken}, or more"
                )


def at_once(shapes: Sequence[Shape], limits: Limits) -> int:
    """Return how many runs the limits let be awake at once, at most."""
    runs = sum(len(shape.runs) for shape in shapes)
    for what, most in limits._asdict().items():
        if most and (least := min(getattr(shape.takes, what) for shape in shapes)):
            runs = min(runs, most // least)
    return runs


def render_set(
    wanted: ResolvedSet,
    shapes: Sequence[Shape],
    chart: Chart,
    limits: Limits,
    given: Mapping[str, Any],
    names: Sequence[str],
    choice: str,
) -> SetRelease:
    """Render the release of a set.

    Args:
        wanted: The set, with the runs that confirm it.
        shapes: Its rendered shapes.
        chart: The chart of its runs.
        limits: Of what is awake.
        given: Values of the chart `seedbed-set` over those that follow.
        names: Names that runs of the set have or may get.
        choice: What is confirmed, as `choice_text`; "" confirms nothing.

    Raises:
        SeedbedError: CONFIG, the chart refuses a value, or an object would be too large, with both
            numbers; DEPLOY, Helm failed.
    """
    values = merged(_values(wanted, shapes, chart, limits, names, choice), given)
    with tempfile.TemporaryDirectory(prefix="seedbed-deploy-") as folder:
        file = values_file(Path(folder), "values", values)
        place = (wanted.name, str(SET_CHART), f"--namespace={chart.namespace}")
        manifest = call("helm", "template", *place, file, "--kube-version=1.33.0")
        objects = objects_of(manifest)
        text = Path(file.removeprefix("--values=")).read_text()
    sizes = check_sizes(objects, manifest, [text], SET_CHART, _CURE)
    return SetRelease(wanted.name, chart, values, manifest, objects, sizes)


def _values(
    wanted: ResolvedSet,
    shapes: Sequence[Shape],
    chart: Chart,
    limits: Limits,
    names: Sequence[str],
    choice: str,
) -> dict[str, Any]:
    templates = {"shapes": {shape.key: shape.objects for shape in shapes}}
    text = json.dumps(templates, sort_keys=True, separators=(",", ":"))
    packed = gzip.compress(text.encode(), mtime=0)
    given, first = chart.values(), shapes[0]
    accounts: dict[str, Any] = dict.fromkeys(("cost", "learner", "actor"))
    for shape in shapes:
        accounts |= shape.accounts
    policy = {**(given.get("networkPolicy") or {})}
    policy.pop("bucket", None)
    return {
        "files": {
            "sweep": sweep_text(wanted.sweep),
            "experiment": dump_experiment(wanted.base, named_only=True),
            "templates": base64.b64encode(packed).decode(),
            "confirm": choice,
        },
        "names": list(names),
        "limits": limits._asdict(),
        "objects": _kinds(shapes),
        "rules": _without_doubles(rule for shape in shapes for rule in shape.rules),
        "accounts": accounts,
        "rbac": {"create": (given.get("rbac") or {}).get("create", True)},
        "auth": {"existingSecret": existing_secret(given)},
        "networkPolicy": policy,
        **_of_the_meter(first.objects),
        **{key: given[key] for key in _SHARED if given.get(key)},
    }


def _of_the_meter(objects: list[ApiObject]) -> dict[str, Any]:
    """Return image and scheduling of the cost meter, which the controller has, too."""
    if (meter := workload_of(objects, "cost")) is None:
        raise ConfigError(
            "cost.enabled is false: the cost meters of its runs bring the bill of a set, and end "
            "each run; leave the value out"
        )
    pod = template_of(meter)["spec"]
    (container, *_) = pod["containers"]
    named, _, digest = container["image"].partition("@")
    registry, _, last = named.rpartition("/")
    repository, _, tag = last.partition(":")
    image = {
        "registry": registry, "repository": repository, "tag": tag, "digest": digest,
        "pullPolicy": container["imagePullPolicy"],
        "pullSecrets": [one["name"] for one in pod.get("imagePullSecrets", [])],
    }  # fmt: skip
    keys = ("nodeSelector", "tolerations", "affinity", "priorityClassName")
    return {"image": image, "pod": {key: pod[key] for key in keys if pod.get(key)}}


def _kinds(shapes: Sequence[Shape]) -> list[dict[str, Any]]:
    """Return the kinds of the runs' objects, with their names, and the volumes' names."""
    names: dict[tuple[str, str, bool], dict[str, None]] = {}
    for item in (item for shape in shapes for item in shape.objects):
        found = names.setdefault((*RESOURCES[item["kind"]], False), {})
        name = item["metadata"]["name"]
        found[name] = None
        for claim in item.get("spec", {}).get("volumeClaimTemplates", []):
            claims = names.setdefault((*RESOURCES["PersistentVolumeClaim"], True), {})
            for number in range(max(1, replicas_of(item))):
                claims[f"{claim['metadata']['name']}-{name}-{number}"] = None
    return [
        {
            "apiGroup": group,
            "resource": resource,
            "names": list(found),
            "isClaim": is_claim,
        }
        for (group, resource, is_claim), found in sorted(names.items())
    ]


def _without_doubles(rules: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return list({json.dumps(rule, sort_keys=True): rule for rule in rules}.values())


def _dearest(takes: Sequence[Limits], found: Sequence[Rates], limits: Limits, awake: int) -> float:
    """Return what an hour of all awake runs costs at most, in US dollars.

    Args:
        takes: What a run of each shape has.
        found: What it costs.
        limits: Of all.
        awake: The most runs at once.
    """
    bounds = [awake * max(one.dollars for one in found)]
    for what, most in limits._asdict().items():
        parts = [getattr(one, what) for one in takes]
        if most and all(parts):
            pairs = zip(found, parts, strict=True)
            bounds.append(most * max(one.dollars / part for one, part in pairs))
    return min(bounds)


def plan_of_release(
    wanted: ResolvedSet, shapes: Sequence[Shape], limits: Limits, release: SetRelease
) -> list[str]:
    """Return what a set takes on a cluster, in lines."""
    awake = at_once(shapes, limits)
    kept = [f"--max-{what} {most}" for what, most in limits._asdict().items() if most]
    lines = [f"  at most {counted(awake, 'run')} at once ({', '.join(kept)})"]
    found = [rates(shape.objects) for shape in shapes]
    known = [one for one in found if one is not None]
    own = rates(release.objects)
    if own is not None and len(known) == len(found):
        dearest = _dearest([shape.takes for shape in shapes], known, limits, awake)
        volumes = sum(
            len(shape.runs) * one.volumes for shape, one in zip(shapes, known, strict=True)
        )
        lines.append(
            f"  costs at most {money(dearest + own.dollars)} an hour at the limits, "
            f"{money(own.dollars)} of it the controller"
        )
        lines.append(
            f"  volumes of {counted(len(wanted.runs), 'run')}, which stay after the end: "
            f"{money(volumes * _MONTH_HOURS)} a month until they are deleted"
        )
        if release.values.get("volumes") == "free":
            lines[-1] = (
                f"  volumes of {counted(len(wanted.runs), 'run')}: "
                f"{money(volumes * _MONTH_HOURS)} a month, less those of runs that are over, which "
                "the controller deletes once it has their rows and best checkpoints"
            )
    longest = max((run.name for run in wanted.runs), key=len)
    lines.append(f"  longest name: {longest}, {len(longest)} letters")
    lines.append(
        f"  {counted(len(shapes), 'shape')} of objects; the largest object, {release.sizes.name}, "
        f"has {release.sizes.largest:,} bytes, and Helm's Secret {release.sizes.release:,} of "
        f"{LIMIT_BYTES:,}"
    )
    return lines


def file_in(folder: Path) -> Path:
    """Return the file of a folder that has the objects of a set's release."""
    return folder / "set.yaml"


def write_files(release: SetRelease, folder: Path) -> Path:
    """Write the objects of a set's release to a file, for GitOps.

    Raises:
        SeedbedError: CONFIG, the file cannot be written.
    """
    file = file_in(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(release.manifest)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error}") from error
    return file


def check_rights(release: SetRelease) -> None:
    """Refuse to begin where the account lacks a right that the release needs.

    Those are to make the release's objects, and to have what its Roles give: nobody may give more.

    Raises:
        SeedbedError: DEPLOY, with the verb and the resource.
    """
    place = ("kubectl", f"--namespace={release.chart.namespace}", "auth", "can-i")
    if attempt(*place, "*", "*.*").stdout.strip() == "yes":
        return
    wanted = {("create", "", "secrets")}  # Helm's own
    for item in release.objects:
        wanted.add(("create", *(RESOURCES | _OF_A_SET)[item["kind"]]))
        for rule in item.get("rules") or []:
            wanted |= {*itertools.product(rule["verbs"], rule["apiGroups"], rule["resources"])}
    missing = []
    for verb, group, resource in sorted(wanted):
        whole, _, part = resource.partition("/")
        words = [verb, f"{whole}.{group}".rstrip("."), *([f"--subresource={part}"] if part else [])]
        if attempt(*place, *words).stdout.strip() == "no":
            missing.append(" ".join(words).replace(" --subresource=", "/"))
    if missing:
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"the account may not {', '.join(missing)} in the namespace {release.chart.namespace}: "
            "ask for the role admin there, or, where the chart seedbed-platform names this "
            "namespace, say --set rbac.create=false; nothing is installed",
        )


def install_set(release: SetRelease, retry: str | None) -> None:
    """Install the release of a set, or upgrade it.

    Args:
        release: The release.
        retry: `failed`: the controller starts the runs that have failed.

    Raises:
        SeedbedError: DEPLOY, a program failed.
    """
    namespace = f"--namespace={release.chart.namespace}"
    missing = ["--create-namespace"] * (not has_namespace(release.chart.namespace))
    with tempfile.TemporaryDirectory(prefix="seedbed-deploy-") as folder:
        values = partial(values_file, Path(folder))("set", release.values)
        chart = (release.name, str(SET_CHART), namespace, values)
        call("helm", "upgrade", "--install", *chart, *missing)
    if retry is not None:
        patch = json.dumps({"data": {"retry": retry}})
        state = f"{release.name}-set-state"
        call("kubectl", namespace, "patch", "configmap", state, "--type=merge", f"--patch={patch}")


def check_chart_of(name: str, namespace: str, is_set: bool) -> None:
    """Refuse the name of a Helm release of another chart, which an upgrade would replace.

    Args:
        name: Name of the release.
        namespace: Its namespace.
        is_set: The chart is `seedbed-set`; else one of single experiments.

    Raises:
        SeedbedError: CONFIG, with the other chart; DEPLOY, Helm is missing.
    """
    options = (f"--namespace={namespace}", f"--filter=^{name}$", "--all", "--output=json")
    listed = attempt("helm", "list", *options)
    try:
        there = json.loads(listed.stdout or "[]")
    except ValueError:  # of a Helm that answers otherwise; the upgrade tells what is wrong
        return
    for one in there:
        if one["chart"].startswith("seedbed-set-") != is_set:
            raise ConfigError(
                f"{name} is a release of the chart {one['chart']}, which this one would replace: "
                f"choose another name ({'--name' if is_set else '--release'} NAME)"
            )


def check_names(wanted: ResolvedSet, names: Sequence[str], namespace: str) -> None:
    """Refuse a set of which a name is there already, or that Helm has not installed.

    Args:
        wanted: The set.
        names: Names that runs of the set have or may get.
        namespace: Its namespace.

    Raises:
        SeedbedError: CONFIG, with the name; DEPLOY, no cluster answers.
    """
    found = everything_in(namespace)
    taken = {one.name: "a release" for one in found.releases if one.of_set != wanted.name}
    for other in found.sets:
        if other.name == wanted.name and not any(map(helm_release, other.objects)):
            raise ConfigError(
                f"the set {wanted.name} in namespace {namespace} comes from plain files, which "
                "Helm does not take over: change them (--render DIR, and apply), or delete them "
                "first (`kubectl delete -f DIR/set.yaml` takes the bill and the rows with them)"
            )
        if other.name != wanted.name:
            taken |= dict.fromkeys((*other.runs, *other.awake), f"a run of the set {other.name}")
    for name in (wanted.name, *names):
        if name in taken:
            raise ConfigError(
                f"{name} is {taken[name]} in namespace {namespace} already: choose another name of "
                "the set (--name NAME)"
            )
