"""The container beside a learner that evaluates checkpoints."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from seedbed.cli import evaluate
from tests.support.chart import merged, refused, render

WITH: dict[str, Any] = {"learner": {"evaluation": {"enabled": True}}}


def containers(values: dict[str, Any]) -> dict[str, Any]:
    return {c["name"]: c for c in render(values).pods()["pong-learner"]["spec"]["containers"]}


def parsed(container: dict[str, Any]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    evaluate.add_arguments(parser)
    assert container["command"] == ["seedbed", "evaluate"]
    return parser.parse_args(container["args"])


def test_it_follows_the_run_of_its_learner() -> None:
    two = containers(merged(WITH, {"learner": {"evaluation": {"everyFrames": 4_000_000}}}))
    args = parsed(two["evaluation"])
    assert f"--run-dir={args.run_dir}" in two["learner"]["args"]
    assert (args.follow, args.linger, args.episodes, args.every) == (True, True, 200, 4_000_000)
    assert args.set == ["learner.device=cpu"], "an accelerator is the learner's"
    # Nothing is evaluated twice, and by default nothing changes.
    assert "--set=evaluation.every_frames=0" in two["learner"]["args"]
    assert two["evaluation"]["image"] == two["learner"]["image"]
    assert two["evaluation"]["resources"]["requests"] == {"cpu": "1", "memory": "512Mi"}
    assert {"name": "runs", "mountPath": "/runs"} in two["evaluation"]["volumeMounts"]
    alone = containers({})
    assert "evaluation" not in alone
    assert "--set=evaluation.every_frames=0" not in alone["learner"]["args"]


@pytest.mark.parametrize("checkpoints", ["", "gs://bucket/pong"])
def test_each_of_several_learners_has_one(checkpoints: str) -> None:
    several = {"learner": {"replicas": 2, "persistence": {"checkpoints": checkpoints}}}
    two = containers(merged(WITH, several))
    args = parsed(two["evaluation"])
    (rank,) = [v for v in two["evaluation"]["env"] if v["name"] == "SEEDBED_RANK"]
    assert rank["valueFrom"]
    folder = next(a for a in two["learner"]["args"] if a.startswith("--run-dir="))
    if checkpoints:
        assert args.run_dir == "gs://bucket/pong/rl/pong/pong/learner-$(SEEDBED_RANK)"
        assert f"--run-dir={args.rows}" == folder
    else:
        assert f"--run-dir={args.run_dir}" == folder


def test_hosts_have_none() -> None:
    values = merged(WITH, {"learner": {"hosts": 2}, "experiment": {"learner": {"backend": "jax"}}})
    assert "learner.hosts is 2 and learner.evaluation.enabled is true" in refused(values)
