"""Several actors of one container, over a socket beside the learner's port."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support.processes import START_S, Process, cluster, parent
from tests.support.waiting import wait_for


@pytest.mark.slow
def test_actors_of_one_container_share_a_socket_and_an_end(tmp_path: Path) -> None:
    with cluster(tmp_path) as it:
        socket = f"unix:{tmp_path}/learner.sock"
        listen = ("--listen", "127.0.0.1:0", "--listen", socket)
        learner = it.start("learner", "--run-dir", str(it.run), *listen)
        actors = it.start("actor", "--learner", socket, "--processes", "2")
        it.trains(learner)
        wait_for(lambda: it.status()["numbers"]["sessions"] == 4, "both have joined", START_S)
        processes = actors.children()
        assert len(processes) == 2
        os.kill(min(processes), signal.SIGKILL)
        assert actors.wait() == 128 + signal.SIGKILL
        assert not [pid for pid in processes if parent(pid)], "no orphans"
        learner.runs()


@pytest.mark.slow
def test_actors_of_one_container_drain_at_sigterm(tmp_path: Path) -> None:
    """As a pod that is deleted or scaled away: it ends well, here without a learner."""
    arguments = ("actor", "cartpole-vtrace", "--learner", "127.0.0.1:1", "--processes", "2")
    actors = Process(tmp_path, *arguments)
    try:
        tries = re.compile(r"/(\d+)/\d+/\d+: .*; trying")
        wait_for(lambda: len(set(tries.findall(actors.said))) == 2, "both try", START_S)
        actors.send(signal.SIGTERM)
        assert actors.wait(30) == 0, actors.said
    finally:
        actors.popen.kill()
