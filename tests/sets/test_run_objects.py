"""Objects of a run of a set: those that the chart would render for it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from copy import deepcopy
from itertools import groupby
from typing import Any

import pytest
import yaml

from seedbed.config import parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.sets.resolve import ResolvedSet, Run, renamed, resolve
from seedbed.sets.run_objects import (
    ACTOR_SECTIONS,
    CHARTS_KEYS,
    PLACEHOLDER,
    SHAPE_KEYS,
    objects_of_run,
    shape_of,
)
from seedbed.sets.sweep import Sweep
from tests.support.chart import CHART, merged, render

LR = "learner.optimizer.learning_rate"
Objects = list[dict[str, Any]]


def resolved(experiment: str, axes: dict[str, Any], **more: Any) -> ResolvedSet:
    return resolve(Sweep(experiment=experiment, axes=axes, name="try", **more), "sweep.yaml")


def template_of(wanted: ResolvedSet, run: Run, values: dict[str, Any]) -> Objects:
    """The objects of a run's shape, rendered with the placeholder."""
    one = renamed(run, PLACEHOLDER, wanted.name)
    return rendered(one, values)


def rendered(run: Run, values: dict[str, Any]) -> Objects:
    text = dump_experiment(run.experiment, named_only=True)
    given = merged({"experimentFile": text}, values)
    return deepcopy(render(given, run.name).all)


def without_named_differences(objects: Objects) -> Objects:
    """Objects without the digests and the label that the chart has otherwise."""
    objects = deepcopy(objects)
    for item in objects:
        item["metadata"]["labels"].pop("app.kubernetes.io/managed-by", None)
        if "experiment.yaml" in (item.get("data") or {}):
            read = parse_experiment(item["data"]["experiment.yaml"])
            item["data"]["experiment.yaml"] = read.model_dump(mode="json")
    text = [json.dumps(item, sort_keys=True) for item in objects]
    names = r'"(--goal=|checksum/experiment": "|seedbed.dev/pods": ")[0-9a-f]{16}"'
    return [json.loads(re.sub(names, r'"\1"', one)) for one in text]


def annotations_of(objects: Objects) -> dict[str, str]:
    """Checksums of the experiment by component."""
    found = {}
    for item in objects:
        pod = (item.get("spec") or {}).get("template") or {}
        meta = pod.get("metadata") or {}
        if text := meta.get("annotations", {}).get("checksum/experiment"):
            found[meta["labels"]["app.kubernetes.io/component"]] = text
    return found


def goal_of(objects: Objects) -> str:
    found = set(re.findall(r"--goal=(\w+)", json.dumps(objects)))
    assert len(found) == 1
    return str(found.pop())


def arguments_of(objects: Objects, option: str) -> list[str]:
    return re.findall(rf'"--{option}=([^"]*)"', json.dumps(objects))


HOSTS = {"learner": {"persistence": {"storageClass": "rwx"}}}
SWEEPS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], int]] = {
    # experiment, axes, further keys of the sweep, values of the chart, shapes
    "learning rate": ("cartpole-vtrace", {LR: [1e-3, 3e-3]}, {"seeds": 2}, {}, 1),
    "network": (
        "pong-vtrace",
        {"learner.network": ["nature", "impala_deep"]},
        {"set": {"learner.network_options": {}}},
        {},
        1,
    ),
    "kwargs": (
        "cartpole-vtrace",
        {"environment.kwargs": [{"sutton_barto_reward": True}, {"render_mode": "rgb_array"}]},
        {"seeds": [3, 8]},
        {"image": {"registry": "r"}, "extraLabels": {"seedbed.dev/set": "try"}},
        1,
    ),
    "device": ("cartpole-vtrace", {"learner.device": ["auto", "cpu"]}, {"seeds": [4]}, {}, 1),
    "stop": (
        "cartpole-vtrace",
        {"stop.dollars": [0.5, 2, 0], "stop.idle_s": [0, 600], "stop.env_frames": [10_000]},
        {},
        {},
        1,
    ),
    "backend": ("cartpole-vtrace", {"learner.backend": ["tensorflow", "jax"]}, {}, {}, 2),
    "inference": (
        "cartpole-vtrace",
        {"learner.inference.location": ["learner", "actor"], LR: [1e-3, 2e-3]},
        {"exclude": [{"learner.inference.location": "actor", LR: 2e-3}]},
        {},
        2,
    ),
    "folders": (
        "cartpole-vtrace",
        {LR: [1e-3, 3e-3]},
        {"set": {"learner.checkpoint.directory": "gs://b/c", "learner.upload": "gs://b/u/"}},
        {"learner": {"spot": True}},
        1,
    ),
    "shards": (
        "cartpole-dqn",
        {LR: [1e-3, 3e-3], "learner.replay.priority_exponent": [0.0, 0.6]},
        {},
        {"replay": {"shards": 2, "sequences": 3_000}},
        2,
    ),
    "hosts": (
        "cartpole-vtrace",
        {LR: [1e-3, 3e-3]},
        {"set": {"learner.backend": "jax", "learner.hosts": 2}},
        HOSTS,
        1,
    ),
    "several": ("cartpole-vtrace", {LR: [1e-3, 3e-3]}, {}, {"learner": {"replicas": 2}}, 1),
    "without a meter": (
        "cartpole-vtrace",
        {LR: [1e-3, 3e-3]},
        {},
        {"cost": {"enabled": False}, "auth": {"existingSecret": "try-set-auth"}},
        1,
    ),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_objects_are_those_of_the_runs_own_release(name: str) -> None:
    experiment, axes, more, values, shapes = SWEEPS[name]
    wanted = resolved(experiment, axes, **more)
    by_shape = sorted(wanted.runs, key=lambda run: shape_of(run.experiment))
    groups = [list(runs) for _, runs in groupby(by_shape, lambda run: shape_of(run.experiment))]
    assert len(groups) == shapes
    for runs in groups:
        template = template_of(wanted, runs[0], values)
        before = deepcopy(template)
        for run in runs:
            own = objects_of_run(template, run.name, run.experiment, 0)
            direct = rendered(run, values)
            assert without_named_differences(own) == without_named_differences(direct)
        assert template == before


def test_the_managers_label_is_not_helms() -> None:
    wanted = resolved("cartpole-vtrace", {LR: [1e-3, 3e-3]})
    run = wanted.runs[0]
    objects = objects_of_run(template_of(wanted, run, {}), run.name, run.experiment, 0)
    found = {item["metadata"]["labels"]["app.kubernetes.io/managed-by"] for item in objects}
    assert found == {"seedbed-set"}
    assert PLACEHOLDER not in json.dumps(objects)


def test_checksums_change_exactly_with_what_the_pods_read() -> None:
    axes = {LR: [1e-3, 3e-3], "actor.groups": [1, 2]}
    wanted = resolved("cartpole-vtrace", axes, seeds=2)
    template = template_of(wanted, wanted.runs[0], {})
    by_file: dict[str, set[str]] = {}
    by_actor: dict[str, set[str]] = {}
    for run in wanted.runs:
        for budget in (0, 0.5):
            objects = objects_of_run(template, run.name, run.experiment, budget)
            (text,) = (
                item["data"]["experiment.yaml"]
                for item in objects
                if "experiment.yaml" in (item.get("data") or {})
            )
            read = yaml.safe_load(text)
            found = annotations_of(objects)
            assert found.keys() == {"learner", "actor"}
            by_file.setdefault(found["learner"], set()).add(text)
            acted = json.dumps({key: read.get(key) for key in ACTOR_SECTIONS})
            by_actor.setdefault(found["actor"], set()).add(acted)
    assert len(by_file) == 8
    assert len(by_actor) == 4  # two seeds, two numbers of groups
    assert all(len(read) == 1 for read in [*by_file.values(), *by_actor.values()])


def test_the_goal_is_of_the_stop_and_the_budget() -> None:
    axes = {"stop.env_frames": [10_000, 20_000], "stop.idle_s": [0, 60], LR: [1e-3]}
    wanted = resolved("cartpole-vtrace", axes)
    template = template_of(wanted, wanted.runs[0], {})
    goals = {
        (run.experiment.stop.env_frames, run.experiment.stop.idle_s, budget): goal_of(
            objects_of_run(template, "one", run.experiment, budget)
        )
        for run in wanted.runs
        for budget in (0, 0.5)
    }
    assert goals[10_000, 0, 0] == goals[10_000, 60, 0]  # a pause ends nothing
    assert len(set(goals.values())) == 4


@pytest.mark.parametrize(
    ("own", "budget", "wanted"),
    [(0.0, 0.0, "0"), (2.0, 0.0, "2"), (0.0, 0.02, "0.02"), (2.0, 0.5, "0.5"), (0.25, 0.5, "0.25")],
)
def test_the_lower_bound_holds(own: float, budget: float, wanted: str) -> None:
    one = resolved("cartpole-vtrace", {LR: [1e-3, 2e-3]}, set={"stop.dollars": own})
    run = one.runs[0]
    objects = objects_of_run(template_of(one, run, {}), run.name, run.experiment, budget)
    assert arguments_of(objects, "budget") == [wanted, wanted]  # the meter, the last resort


READS = re.compile(
    r'"seedbed\.setting" \(dict "root" [.$]\S* "path" "(?P<setting>[\w.]+)"\)'
    r'|dig (?P<dig>(?:"\w+" )+)"" \(include "seedbed\.experimentValues"'
    r'|dig "stop" dict \(include "seedbed\.experimentValues"(?P<stop>)'
    r'|pick \(include "seedbed\.experimentValues" \. \| fromJson\) (?P<pick>(?:"\w+" ?)+)'
)
# In _experiment.tpl: they make what the others read, or are called by checks alone.
MAKES = ("$experiment := include", "$parsed = dict")


def reads(text: str) -> set[str]:
    """Keys of the experiment that a template reads."""
    found: set[str] = set()
    for line in text.splitlines():
        matches = list(READS.finditer(line))
        is_read = re.search(r'"seedbed\.(setting|experimentValues)"', line)
        is_made = "define" in line or any(word in line for word in MAKES)
        assert matches or not is_read or is_made, line
        for match in matches:
            if match["setting"]:
                found.add(match["setting"])
            elif match["dig"]:
                found.add(".".join(re.findall(r"\w+", match["dig"])))
            elif match["pick"]:
                assert tuple(re.findall(r"\w+", match["pick"])) == ACTOR_SECTIONS
            else:
                found.add("stop")
    return found


def test_the_keys_of_a_shape_are_those_that_the_templates_read() -> None:
    files = [file for file in (CHART / "templates").rglob("*.*") if file.name != "NOTES.txt"]
    makers = [file for file in files if not file.name.startswith("_validate")]
    found = {key for file in makers for key in reads(file.read_text())}
    of_a_run = {key for key in found if key.split(".")[0] == "stop"}
    checks_alone = {"agent"}
    assert "agent" not in str([reads(f.read_text()) for f in makers if f.name != "_experiment.tpl"])
    # The chart takes these away or sets them: _experiment.tpl.
    set_by_chart = set(CHARTS_KEYS)
    of_deploy = {"actor.processes", "gossip.replicas", "gossip.topology", "learner.replay.capacity"}
    assert found - of_a_run - checks_alone | set_by_chart | of_deploy == set(SHAPE_KEYS)


def test_the_meters_image_can_make_the_objects() -> None:
    code = (
        "import sys, seedbed.sets.run_objects as made; assert made.PLACEHOLDER;"
        "names = ('keras', 'tensorflow', 'scipy', 'jax', 'torch', 'gymnasium', 'pandas');"
        "print([name for name in names if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == "[]", answer.stderr
