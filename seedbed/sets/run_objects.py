"""The objects of one run of a set on a cluster, made from a template that the chart has rendered.

The chart is rendered once for each shape: for all runs with the same values of the keys that the
chart turns into objects. What else differs between runs, this module puts in, so that whoever
applies the objects needs no Helm.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from seedbed.config import Experiment
from seedbed.config.keys import sections
from seedbed.config.yaml_text import dump_yaml, load_yaml

# Name of the release that templates are rendered with. As long as a name may be, so that what the
# chart refuses for its length is refused here, too.
PLACEHOLDER = "run-of-a-set-xxxxxxxxxxxxxxxxxxxxxx"

MANAGER = "seedbed-set"

# What `seedbed deploy` makes values of, and what the chart's templates read.
SHAPE_KEYS = (
    "actor.processes",
    "environment.max_abs_observation",
    "environment.max_abs_reward",
    "gossip.addresses",
    "gossip.replicas",
    "gossip.topology",
    "learner.backend",
    "learner.checkpoint.directory",
    "learner.checkpoint.every_s",
    "learner.coordinator",
    "learner.hosts",
    "learner.inference.location",
    "learner.replay.capacity",
    "learner.replay.directory",
    "learner.replay.priority_exponent",
    "learner.replay.shards",
    "learner.replay.storage",
    "learner.upload",
)

# Keys that the chart may set itself. Each is one of a shape, so that a template's value is right
# for every run of its shape.
CHARTS_KEYS = (
    "gossip.addresses",
    "gossip.replicas",
    "gossip.topology",
    "learner.coordinator",
    "learner.hosts",
    "learner.replay.capacity",
    "learner.replay.directory",
    "learner.replay.shards",
    "learner.replay.storage",
)

# What of the experiment restarts actors when it changes.
ACTOR_SECTIONS = ("seed", "environment", "actor")

_LABEL = "app.kubernetes.io/{}".format


def shape_of(experiment: Experiment) -> str:
    """Return the shape of a run: JSON of the keys that the chart turns into objects.

    Two runs with the same shape have the same objects but for names, seed, stop conditions and
    their experiments. Keys that nothing has named are left out, because the chart has defaults of
    its own for them.

    Args:
        experiment: Settings of the run, with its name.
    """
    tree = _named(experiment)
    found = {key: value for key in SHAPE_KEYS for value in _values(tree, key)}
    # A folder below which each run has its own ends with the name of the run.
    for key, value in found.items():
        if isinstance(value, str) and value.endswith(f"/{experiment.name}"):
            found[key] = f"{value.removesuffix(experiment.name)}{PLACEHOLDER}"
    return json.dumps(found, sort_keys=True)


def objects_of_run(
    template: list[dict[str, Any]], name: str, experiment: Experiment, budget: float
) -> list[dict[str, Any]]:
    """Return the objects of a run.

    Args:
        template: Objects of the run's shape, with `PLACEHOLDER` for its name; left as it is.
        name: Name of the run.
        experiment: Settings of the run, with the stop of its rung.
        budget: US dollars that the run may cost beside its own `stop.dollars`; 0 is no bound.

    Returns:
        The objects in the order of the template.
    """
    objects: list[dict[str, Any]] = json.loads(json.dumps(template).replace(PLACEHOLDER, name))
    tree = _named(experiment) | {"name": name}
    for item in objects:
        data = item.get("data") or {}
        if item["kind"] == "ConfigMap" and "experiment.yaml" in data:
            tree = _completed(tree, load_yaml(data["experiment.yaml"]))
            data["experiment.yaml"] = dump_yaml(tree)
    checksums = {
        "learner": _digest(tree),
        "actor": _digest({key: tree.get(key) for key in ACTOR_SECTIONS}),
    }
    arguments = _meter_arguments(name, experiment, budget)
    for item in objects:
        labels = item["metadata"].get("labels", {})
        if _LABEL("managed-by") in labels:
            labels[_LABEL("managed-by")] = MANAGER
        for pod in _pod_templates(item):
            annotations = pod["metadata"].get("annotations", {})
            component = pod["metadata"].get("labels", {}).get(_LABEL("component"))
            if "checksum/experiment" in annotations:
                annotations["checksum/experiment"] = checksums[component]
            for container in pod["spec"]["containers"]:
                if "args" in container:
                    container["args"] = _with_arguments(container["args"], arguments)
        own = item["metadata"].get("annotations", {})
        if "seedbed.dev/pods" in own:
            own["seedbed.dev/pods"] = _digest(item["spec"]["replicatedJobs"])
    return objects


def _named(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that a file or a command has named, as plain data."""
    return experiment.model_dump(mode="json", exclude_unset=True)


def _values(tree: Mapping[str, Any], key: str) -> list[Any]:
    """Return the value at a key; nothing without one."""
    found: Any = tree
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return []
        found = found[part]
    return [found]


def _completed(run: dict[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run with what the chart has added to those of its template."""
    tree = _over(run, template, "")
    for key in CHARTS_KEYS:
        *parents, leaf = key.split(".")
        section: Any = tree
        for part in parents:
            section = section.get(part) or {}
        section.pop(leaf, None)
        for value in _values(template, key):
            section[leaf] = value
    return tree


def _over(run: Mapping[str, Any], template: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return settings of a run over those of a template, section by section."""
    known = dict(sections())
    found = {**template, **run}
    for key in found:
        here = f"{path}.{key}".lstrip(".")
        if here in known and (run.get(key) or template.get(key)):
            found[key] = _over(run.get(key) or {}, template.get(key) or {}, here)
    return found


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _meter_arguments(name: str, experiment: Experiment, budget: float) -> dict[str, str]:
    """Return what ends or pauses a run, as arguments of its meter; "" leaves one out."""
    stop = experiment.stop
    ends = stop.model_dump(mode="json", exclude_unset=True, exclude={"idle_s", "pending_s"})
    bounds = [dollars for dollars in (stop.dollars, budget) if dollars]
    return {
        "--budget": _number(min(bounds, default=0)),
        "--idle-s": _number(stop.idle_s) if stop.idle_s else "",
        "--pending-s": _number(stop.pending_s),
        "--goal": _digest([name, ends, budget]),
    }


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _with_arguments(given: list[str], wanted: Mapping[str, str]) -> list[str]:
    """Return the arguments of a meter with others in their places, and those of others as given."""
    if not any(argument.startswith("--goal=") for argument in given):
        return given
    found = []
    for argument in given:
        option = argument.partition("=")[0]
        if option not in wanted:
            found.append(argument)
        elif option != "--idle-s":
            found.append(f"{option}={wanted[option]}")
        if option == "--budget" and wanted["--idle-s"]:
            found.append(f"--idle-s={wanted['--idle-s']}")
    return found


def _pod_templates(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the templates of an object's pods."""
    spec = item.get("spec") or {}
    if item["kind"] == "CronJob":
        yield spec["jobTemplate"]["spec"]["template"]
    elif item["kind"] == "JobSet":
        yield from (job["template"]["spec"]["template"] for job in spec["replicatedJobs"])
    elif item["kind"] in ("Deployment", "StatefulSet"):
        yield spec["template"]
