"""`learner.operation_threads`: what 0 comes to, and that TensorFlow is told."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seedbed import backends
from seedbed.config import Experiment, parse_experiment
from seedbed.launch import operation_threads as module
from seedbed.launch.operation_threads import operation_threads
from seedbed.runs.directory import open_run_directory
from seedbed.services.learner.learner import Learner


def experiment(text: str) -> Experiment:
    return parse_experiment(f"name: threads\nenvironment: {{id: 'atari:Pong'}}\n{text}")


@pytest.mark.parametrize(
    ("cores", "text", "threads"),
    [
        (2.0, "actor: {threads: 2}", 1),
        (16.0, "actor: {threads: 2, processes: 3}", 10),
        (3.5, "", 2),
        (0.5, "", 1),
        (16.0, "actor: {processes: 0}", 16),
        (16.0, "gossip: {replicas: 4}", 3),
        (2.0, "learner: {operation_threads: 5}", 5),
    ],
)
def test_actors_of_this_machine_leave_the_other_cores(
    monkeypatch: pytest.MonkeyPatch, cores: float, text: str, threads: int
) -> None:
    monkeypatch.setattr(module, "usable_cpus", lambda: cores)
    assert operation_threads(experiment(text), actors_here=True) == threads


def test_a_learner_alone_takes_all_cores_unless_told() -> None:
    assert operation_threads(experiment(""), actors_here=False) == 0
    told = experiment("learner: {operation_threads: 3}")
    assert operation_threads(told, actors_here=False) == 3


@pytest.mark.parametrize(("listen", "threads"), [("unix:socket", 3), ("127.0.0.1:0", 0)])
def test_the_learner_tells_its_backend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listen: str, threads: int
) -> None:
    monkeypatch.setattr(module, "usable_cpus", lambda: 4.0)
    told: list[int] = []

    def use(*given: Any) -> None:
        told.append(given[-1])
        raise InterruptedError

    monkeypatch.setattr(backends, "use", use)
    config = experiment("")
    with open_run_directory(tmp_path, config) as run, pytest.raises(InterruptedError):
        Learner(config, run, listen)._load_backend()
    assert told == [threads]


@pytest.mark.slow
def test_tensorflow_is_told() -> None:
    code = """
from seedbed import backends
backends.use("tensorflow", operation_threads=3)
import tensorflow as tf
print(tf.config.threading.get_intra_op_parallelism_threads())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["3"]
