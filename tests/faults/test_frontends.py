"""Front ends: processes that relay streams, killed while actors play through them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from seedbed.cli.status import request_status
from seedbed.runtime.exit_codes import ExitCode
from tests.support.processes import START_S, cluster, free_port
from tests.support.waiting import wait_for


def relayed(address: str) -> list[int]:
    """Environments of each front end."""
    return [each["environments"] for each in request_status(address)["frontends"]]


def test_a_front_end_is_killed_and_its_streams_come_back(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with cluster(tmp_path, "learner.inference.frontends=2") as it:
        learner = it.start("learner", "--listen", address, "--run-dir", str(it.run))
        wait_for(lambda: "listening" in learner.said, f"it listens: {learner.said}", START_S)
        actors = [it.start("actor", "--learner", address, "--index", str(i)) for i in range(2)]
        wait_for(lambda: sum(relayed(address)) == 8, "all groups are relayed", START_S)
        assert min(relayed(address)) > 0, "each group has taken the emptiest"
        it.trains(learner)
        before = request_status(address)["counters"]

        (victim,) = [
            pid
            for pid in learner.children()
            if b"--number\x000" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: "signal SIGKILL; started again" in learner.said, "it is replaced", START_S)
        wait_for(lambda: sum(relayed(address)) == 8, "all groups are back", START_S)
        after = request_status(address)["counters"]
        assert after["abandoned_episodes"] > before["abandoned_episodes"]
        assert after["env_frames"] > before["env_frames"]
        it.trains(learner)

        bytes_of_actors = request_status(address)["network_bytes"]
        assert bytes_of_actors["actor sent"] > 0
        assert bytes_of_actors["actor received"] > 0
        for actor in actors:
            actor.runs()
        learner.send(signal.SIGTERM)
        assert learner.wait() == 0, learner.said
        summary = learner.summary()
        assert summary["env_frames"] == summary["trained_frames"] + summary["discarded_frames"]
        assert not learner.children()


@pytest.mark.parametrize(
    ("overrides", "listen"),
    [
        (["learner.inference.frontends=1"], "127.0.0.1:0"),
        (["learner.inference.frontends=1", "learner.inference.location=actor"], "127.0.0.1:9"),
    ],
)
def test_front_ends_that_cannot_be_are_refused(
    tmp_path: Path, overrides: list[str], listen: str
) -> None:
    with cluster(tmp_path, *overrides) as it:
        learner = it.start("learner", "--listen", listen, "--run-dir", str(it.run))
        assert learner.wait() == ExitCode.CONFIG, learner.said
        assert "takes --listen HOST:PORT and inference in the learner" in learner.said
