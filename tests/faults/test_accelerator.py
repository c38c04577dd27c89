"""The learner with the chart's arguments: no device where one is paid for, eviction by Spot."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from seedbed.checkpoints.store import CheckpointStore
from seedbed.runtime.exit_codes import ExitCode
from tests.support.chart import render
from tests.support.processes import Cluster, Process, cluster, free_port

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
SPOT_S = 15.0  # between SIGTERM and SIGKILL


def start(it: Cluster, port: int, values: dict[str, Any]) -> Process:
    """The learner of a release, with its files here and its port on this machine."""
    values = {"auth": {"enabled": False}, "cost": {"enabled": False}, **values}
    spec = render(values).pods()["pong-learner"]["spec"]
    experiment, *arguments = spec["containers"][0]["args"]
    assert experiment == "/etc/seedbed/experiment.yaml"
    here = {
        "--run-dir": f"--run-dir={it.run}",
        "--listen": f"--listen=127.0.0.1:{port}",
        "--set=learner.metrics_port": "--set=learner.metrics_port=0",
    }
    for i, argument in enumerate(arguments):
        arguments[i] = here.get(argument.rpartition("=")[0], argument)
    return it.start("learner", *arguments, "--set", f"learner.backend={BACKEND}")


@pytest.mark.slow
@pytest.mark.backends
@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="there is a GPU")
def test_a_gpu_that_is_paid_for_and_not_there_ends_the_learner(tmp_path: Path) -> None:
    """At once, without an actor, and before a step is answered on the CPU."""
    with cluster(tmp_path) as it:
        learner = start(it, 0, {"learner": {"accelerator": {"type": "gpu", "name": "nvidia-l4"}}})
        assert learner.wait() == ExitCode.BACKEND, learner.said
        cause, advice = learner.last_lines()[-2:]
        assert "learner.device is 'gpu'" in cause
        assert "there is no /dev/nvidia" in cause
        assert "exit code 12 (BACKEND)" in advice
        assert it.counters()["env_frames"] == it.counters()["updates"] == 0
        assert not it.checkpoints()


@pytest.mark.slow
def test_an_eviction_by_spot_keeps_what_was_trained(tmp_path: Path) -> None:
    with cluster(tmp_path) as it:
        port = free_port()
        learner = start(it, port, {"learner": {"spot": True}})
        it.start("actor", "--learner", f"127.0.0.1:{port}", "--index", "0")
        updates = it.trains(learner)["counters"]["updates"]
        learner.send(signal.SIGTERM)
        try:
            learner.popen.wait(SPOT_S)
        finally:
            learner.send(signal.SIGKILL)
        assert learner.wait() == 0, learner.said
        newest = it.checkpoints()[-1]
        kept = CheckpointStore(str(newest.parent)).read(newest.name).meta["counters"]
        assert kept["updates"] >= updates
        assert "--set=learner.checkpoint.every_s=60" in learner.popen.args
