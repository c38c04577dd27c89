"""What the chart refuses by is rendered for each of its values in a set."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.config.keys import is_within
from seedbed.deploy.chart_values import CHART as PLACE
from seedbed.deploy.set_shapes import (
    CHECKED_KEYS,
    RESOURCES,
    Chart,
    group_by_shape,
    render_shape,
)
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.services.sets.api import _PATHS as paths
from seedbed.sets.resolve import resolve
from seedbed.sets.run_objects import SHAPE_KEYS, objects_of_run
from seedbed.sets.sweep import Sweep
from tests.support.chart import CHART

SETTING = re.compile(r'"seedbed\.setting" \(dict "root" [.$]\S* "path" "([\w.]+)"\)')
LISTED = re.compile(r'range list ((?:"[a-z_]+\.[\w.]+" ?)+)')


def chart(**given: Any) -> Chart:
    return Chart(str(PLACE), "rl", (), given)


def sweep(axes: dict[str, Any], **more: Any) -> Any:
    return resolve(Sweep(experiment="cartpole-vtrace", axes=axes, **more), "sweep.yaml")


def test_the_keys_are_those_that_the_checks_of_the_chart_read() -> None:
    found: set[str] = set()
    for file in (CHART / "templates").glob("_validate*"):
        text = file.read_text()
        found |= {*SETTING.findall(text)}
        for names in LISTED.findall(text):
            found |= {name for name in re.findall(r"[\w.]+", names) if "." in name}
    assert {"learner.device", "learner.unroll_length", "environment.atari.height"} <= found
    known = (*SHAPE_KEYS, *CHECKED_KEYS, "stop")
    assert [key for key in sorted(found) if not any(is_within(key, one) for one in known)] == []


@pytest.mark.parametrize("values", [["cpu", "gpu"], ["gpu", "cpu"], ["auto", "cpu", "tpu"]])
def test_a_value_that_the_chart_refuses_is_found_wherever_it_is(
    values: list[str], tmp_path: Path
) -> None:
    wanted = sweep({"learner.device": values, "learner.optimizer.learning_rate": [1e-3, 1e-2]})
    ((key, runs),) = group_by_shape(wanted).items()
    with pytest.raises(SeedbedError, match=r"experiment.learner.device is [gt]pu"):
        render_shape(wanted, key, runs, chart(), tmp_path, {})


def test_what_a_run_takes(tmp_path: Path) -> None:
    wanted = sweep({"learner.optimizer.learning_rate": [1e-3, 1e-2]})
    ((key, runs),) = group_by_shape(wanted).items()
    given = {
        "learner": {"accelerator": {"type": "gpu", "name": "nvidia-l4"}},
        "actor": {"sidecar": 2, "autoscaling": {"type": "price", "maxReplicas": 9}},
    }
    shape = render_shape(wanted, key, runs, chart(**given), tmp_path, {})
    assert shape.takes == (1, 11, 1)
    assert render_shape(wanted, key, runs, chart(), tmp_path, {}).takes == (1, 1, 0)


def test_learners_of_a_run_take_places_accelerators_and_actors(tmp_path: Path) -> None:
    several = {"gossip.topology": ["gossip", "allreduce"]}
    wanted = sweep(several, set={"gossip.replicas": 4})
    given = {"learner": {"accelerator": {"type": "gpu", "name": "nvidia-l4"}, "topology": "gossip"}}
    groups = group_by_shape(wanted)
    for key, runs in groups.items():
        if json.loads(key)["gossip.topology"] == "allreduce":
            with pytest.raises(SeedbedError, match=r"topology is gossip, and gossip\.topology of"):
                render_shape(wanted, key, runs, chart(**given), tmp_path, {})
            continue
        shape = render_shape(wanted, key, runs, chart(**given), tmp_path, {})
        assert shape.takes == (4, 4, 4)
        (run, *_) = runs
        made = objects_of_run(shape.objects, run.name, run.experiment, 0)
        (text,) = (x["data"]["experiment.yaml"] for x in made
                   if "experiment.yaml" in (x.get("data") or {}))  # fmt: skip
        addresses = yaml.safe_load(text)["gossip"]["addresses"]
        learner = f"{run.name}-learner"
        assert addresses == [f"{learner}-{rank}.{learner}.rl.svc:8490" for rank in range(4)]


def test_shards_of_a_replay_have_an_account_and_volumes(tmp_path: Path) -> None:
    wanted = resolve(
        Sweep(experiment="cartpole-dqn", axes={"learner.replay.capacity": [4000, 8000]}), "x"
    )
    groups = group_by_shape(wanted)
    assert len(groups) == 2
    given = chart(replay={"shards": 2})
    for (key, runs), sequences in zip(groups.items(), (2000, 4000), strict=True):
        shape = render_shape(wanted, key, runs, given, tmp_path, {})
        (replay,) = (x for x in shape.objects if x["metadata"]["name"].endswith("-replay")
                     and x["kind"] == "StatefulSet")  # fmt: skip
        pod = replay["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == "cartpole-dqn-set-actor"
        assert f"--sequences={sequences}" in pod["containers"][0]["args"]


def test_hosts_of_a_learner_are_one_learner_with_a_volume(tmp_path: Path) -> None:
    settings = {"learner.backend": "jax", "learner.hosts": 2}
    wanted = sweep({"learner.optimizer.learning_rate": [1e-3, 1e-2]}, set=settings)
    ((key, runs),) = group_by_shape(wanted).items()
    given = {"accelerator": {"type": "gpu", "name": "nvidia-l4", "count": 2}}
    learner = {**given, "persistence": {"storageClass": "rwx"}}
    shape = render_shape(wanted, key, runs, chart(learner=learner), tmp_path, {})
    assert shape.takes == (1, 2, 4)
    kinds = {item["kind"] for item in shape.objects}
    assert {"JobSet", "PersistentVolumeClaim"} <= kinds


def test_the_controller_has_a_path_for_each_kind() -> None:
    for kind, (group, resource) in RESOURCES.items():
        path = paths[kind]
        assert path.endswith(f"/{resource}")
        assert path.startswith(f"/apis/{group}/" if group else "/api/v1/")
    assert paths.keys() == RESOURCES.keys()
