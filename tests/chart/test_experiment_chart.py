"""The experiment of a release: the laptop's own file, and values over it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from seedbed.config import Experiment, load_experiment, parse_experiment
from tests.support.chart import CHART, ROOT, refused, render

EXPERIMENTS = sorted((ROOT / "experiments").glob("*.yaml"))


def released(values: dict[str, Any], release: str = "pong") -> Experiment:
    """The experiment that the pods of a release read."""
    config = render(values, release).one("ConfigMap", f"{release}-experiment")
    return parse_experiment(config["data"]["experiment.yaml"])


RELEASES: list[tuple[str, dict[str, Any]]] = [
    *((path.stem, {"actor": {"replicas": 1}}) for path in EXPERIMENTS if path.stem != "atari-r2d2"),
    ("atari-r2d2", {"replay": {"shards": 4, "sequences": 25_000, "persistence": {"size": "16Gi"}}}),
    ("cartpole-dqn", {"replay": {"shards": 2}}),
    ("pong-vtrace", {"learner": {"replicas": 4}, "actor": {"replicas": 8}}),
    ("pong-r2d2", {"learner": {"replicas": 4, "topology": "allreduce"}}),
]


@pytest.mark.parametrize(("name", "values"), RELEASES)
def test_every_experiment_is_a_release(name: str, values: dict[str, Any]) -> None:
    path = ROOT / "experiments" / f"{name}.yaml"
    given = {"experimentFile": path.read_text(), **values}
    experiment, wanted = released(given, "mine"), load_experiment(path)
    assert experiment.name == "mine"
    if values.keys() == {"actor"}:
        assert experiment == wanted.model_copy(update={"name": "mine"})
    assert experiment.environment == wanted.environment
    assert experiment.gossip.replicas == values.get("learner", {}).get("replicas", 1)


def test_values_are_laid_over_the_file() -> None:
    text = "name: x\nenvironment: {id: CartPole-v1}\nstop: {env_frames: 40_000, mean_return: 9}\n"
    over = {"evaluation": {"at_end": False}, "stop": {"env_frames": 0, "seconds": 1e-4}}
    experiment = released({"experimentFile": text, "experiment": over})
    assert experiment.environment.id == "CartPole-v1"
    assert not experiment.evaluation.at_end
    assert (experiment.stop.env_frames, experiment.stop.seconds) == (0, 1e-4)
    assert experiment.stop.mean_return == 9
    assert released({}).environment.id == "atari:Pong"


def test_no_template_reads_the_values_beside_the_file() -> None:
    readers = [
        file.name
        for file in (CHART / "templates").rglob("*.*")
        if re.search(r"Values\.experiment\b", file.read_text())
    ]
    assert readers == ["_experiment.tpl"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", ["experimentFile is no YAML", "--set-file"]),
        ("- a", ["experimentFile is no YAML"]),
        ("experiments/pong-vtrace.yaml", ["experimentFile is no YAML", "--set-file"]),
        ("name: pong\n", ["experimentFile has no section environment"]),
    ],
)
def test_files_that_are_no_experiments(text: str, words: list[str]) -> None:
    said = refused({"experimentFile": text})
    for word in words:
        assert word in said


def test_what_belongs_to_the_laptop_is_the_charts() -> None:
    text = (ROOT / "experiments" / "atari-r2d2.yaml").read_text()
    sharded = released({"experimentFile": text, "replay": {"shards": 4, "sequences": 25_000}})
    assert sharded.learner.replay.storage == "remote"
    assert sharded.learner.replay.capacity == 100_000
    assert [x.partition(".")[0] for x in sharded.learner.replay.shards] == [
        f"pong-replay-{shard}" for shard in range(4)
    ]
    text = (ROOT / "experiments" / "pong-vtrace.yaml").read_text()
    own = text + "gossip: {replicas: 4, addresses: ['127.0.0.1:1', '127.0.0.1:2', a:3, a:4]}\n"
    several = released({"experimentFile": own, "learner": {"replicas": 4}})
    assert several.gossip.replicas == 4
    assert all(x.startswith("pong-learner-") for x in several.gossip.addresses)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"experiment": {"learner": {"deterministic": True}}}, ["deterministic", "seedbed train"]),
        (
            {"experiment": {"learner": {"checkpoint": {"directory": "/data/runs/x"}}}},
            ["/data/runs/x", "gs://"],
        ),
        (
            {"experiment": {"learner": {"replay": {"directory": "replay"}}}},
            ['replay.directory "replay"', "/runs/replay"],
        ),
        (
            {
                "experiment": {
                    "agent": "r2d2",
                    "learner": {"replay": {"storage": "remote", "shards": ["127.0.0.1:8480"]}},
                }
            },
            ["127.0.0.1:8480", "replay.shards: 2"],
        ),
        (
            {"experimentFile": (ROOT / "experiments" / "pong-a2c.yaml").read_text()},
            ["actor.replicas 2 and actor.sidecar 0 have 32 environments", "sums to 16"],
        ),
        (
            {"experimentFile": (ROOT / "experiments" / "atari-r2d2.yaml").read_text()},
            ["takes 56 GB", "limits.memory is 4Gi", "replay.shards: 4", "55Gi"],
        ),
    ],
)
def test_what_is_of_another_machine_is_refused(values: dict[str, Any], words: list[str]) -> None:
    said = refused(values)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    "values",
    [
        {"experiment": {"learner": {"checkpoint": {"directory": "gs://bucket/run"}}}},
        {
            "experiment": {
                "agent": "r2d2",
                "learner": {"lstm_units": 512, "replay": {"directory": "/runs/replay"}},
            }
        },
        {
            "experimentFile": (ROOT / "experiments" / "atari-r2d2.yaml").read_text(),
            "learner": {"resources": {"limits": {"memory": "60Gi"}}},
        },
    ],
)
def test_what_is_in_the_pod_is_taken(values: dict[str, Any]) -> None:
    assert render(values).of("StatefulSet")
