"""Several actors of one container, over a socket beside the learner's port."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.processes import START_S, cluster, parent
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
