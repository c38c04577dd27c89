"""Table 1 of the SEED paper as files: what the paper states, and the accelerator of each row."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml

from seedbed.config import load_experiment, parse_experiment
from seedbed.config.without_effect import settings_without_effect
from seedbed.evaluation.atari_protocol import deviations
from tests.support.chart import CHART, ROOT, merged, render

TABLE = ROOT / "experiments" / "table1"
# Environments, CPUs of actors, batch, devices for inference and training, hosts.
ROWS = {
    "lab-p100": (176, 44, 32, None, 1),
    "lab-2-cores": (312, 104, 32, (1, 1), 1),
    "lab-8-cores": (1560, 520, 48, (2, 6), 1),
    "lab-64-cores": (12_480, 4160, 384, (2, 6), 8),
    "football-default-2-cores": (624, 416, 128, (1, 1), 1),
    "football-default-8-cores": (2496, 1664, 160, (3, 5), 1),
    "football-medium-8-cores": (1550, 1032, 160, (3, 5), 1),
    "football-large-8-cores": (1260, 840, 160, (3, 5), 1),
    "football-large-32-cores": (5040, 3360, 640, (3, 5), 4),
    "atari-v100": (256, 55, 64, None, 1),
    "atari-8-cores": (610, 213, 64, None, 1),
    "atari-8-cores-1200": (1200, 419, 256, None, 1),
}


def test_every_row_has_its_files_and_its_line() -> None:
    assert {file.stem for file in TABLE.glob("*.yaml")} == set(ROWS)
    assert {file.stem for file in (TABLE / "values").glob("*.yaml")} == set(ROWS)
    lines = (TABLE / "README.md").read_text().splitlines()
    told = [[cell.strip(" `") for cell in x.split("|")[1:-1]] for x in lines if x.startswith("| `")]
    assert [row[:4] for row in told] == [
        [name, *map(str, numbers[:3])] for name, numbers in ROWS.items()
    ]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_what_the_paper_states(name: str) -> None:
    environments, _, batch, devices, hosts = ROWS[name]
    experiment = load_experiment(TABLE / f"{name}.yaml")
    learner, actor = experiment.learner, experiment.actor
    assert actor.processes * actor.groups * actor.envs_per_group * hosts == environments
    assert (learner.batch_size, learner.hosts) == (batch, hosts)
    assert learner.inference.slots * hosts >= environments
    split = (learner.devices.inference, learner.devices.training)
    assert split == (devices or (0, 0)), "0 and 0 leave it to the learner"
    assert not settings_without_effect(experiment)
    if experiment.environment.family == "atari":
        assert not deviations(experiment.environment)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_renders_with_its_accelerator(name: str) -> None:
    environments, cpus, _, devices, hosts = ROWS[name]
    values: dict[str, Any] = yaml.safe_load((TABLE / "values" / f"{name}.yaml").read_text())
    family = load_experiment(TABLE / f"{name}.yaml").environment.family
    if family != "atari":
        values = merged(values, yaml.safe_load((CHART / "profiles" / f"{family}.yaml").read_text()))
    rendered = render({**values, "experimentFile": (TABLE / f"{name}.yaml").read_text()})
    text = rendered.one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    experiment = parse_experiment(text)
    assert experiment.learner.hosts == hosts
    actors = rendered.one("Deployment", "pong-actor")["spec"]
    actor = experiment.actor
    assert actors["replicas"] * actor.groups * actor.envs_per_group == environments
    asked = actors["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    cores = float(asked.removesuffix("m")) / (1000 if asked.endswith("m") else 1)
    assert math.isclose(actors["replicas"] * cores, cpus, rel_tol=0.005)
    (learner, *_) = rendered.pods()["pong-learner"]["spec"]["containers"]
    limits = learner["resources"]["limits"]
    rented = limits.get("google.com/tpu") or limits["nvidia.com/gpu"]
    name_of = values["learner"]["accelerator"]["name"]
    assert sum(devices or (0, rented)) == rented * (2 if name_of == "tpu7x" else 1)
    assert bool(rendered.of("JobSet")) == (hosts > 1)
