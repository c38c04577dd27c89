"""Children end with their parent, whatever ends it and whatever state they are in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest
from typing_extensions import override

from seedbed.config import parse_experiment
from seedbed.launch.actors import LocalActors
from seedbed.launch.supervisor import Supervisor
from seedbed.runtime.threads import Threads
from tests.support.processes import (
    EXPERIMENT,
    ROOT,
    START_S,
    children,
    cluster,
    command,
    guarded,
    parent,
)
from tests.support.waiting import wait_for

# The parent of two actors.
PARENT = """
import sys, threading
from seedbed.launch.supervisor import start_seedbed
for name in sys.argv[2:]:
    with open(name, "wb") as log:
        child = start_seedbed("actor", sys.argv[1], "--learner", "unix:nowhere", stderr=log)
    print(child.pid, flush=True)
threading.Event().wait()
"""


@pytest.mark.slow
def test_a_stopped_child_ends_with_a_killed_parent(tmp_path: Path) -> None:
    experiment, logs = tmp_path / "experiment.yaml", [tmp_path / name for name in ("a", "b")]
    experiment.write_text(EXPERIMENT)
    command = [sys.executable, "-c", PARENT, str(experiment), *map(str, logs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=dict(os.environ))
    assert process.stdout is not None
    children = [int(process.stdout.readline()) for _ in logs]
    try:
        for log in logs:
            wait_for(lambda log=log: b"trying again" in log.read_bytes(), "it runs", START_S)
        os.kill(guarded(children[0]), signal.SIGSTOP)
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(parent, children)), "both are gone", 5)
    finally:
        for pid in filter(parent, children):
            os.kill(pid, signal.SIGKILL)


CHILD = """
import pathlib, signal, sys, threading
from seedbed.runtime.signals import exit_with_starting_thread
exit_with_starting_thread()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
pathlib.Path(sys.argv[1]).touch()
while True:
    threading.Event().wait(0.1)
"""


class Actors(LocalActors):
    """Processes that end with code 7 on SIGTERM, if they may."""

    def __init__(self, folder: Path) -> None:
        Supervisor.__init__(self, 1, folder)
        self._settings = parse_experiment(EXPERIMENT, ()).actor
        self._memory, self._calls = {}, {}
        self._folder, self._threads, self.started = folder, Threads(), 0
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch)

    @override
    def start_process(self, index: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        self.started += 1
        command = [sys.executable, "-c", CHILD, str(self._folder / str(self.started))]
        return subprocess.Popen(command, stderr=errors, cwd=ROOT, env=dict(os.environ))


def test_the_kernel_does_not_end_a_restarted_actor_before_its_sigterm(tmp_path: Path) -> None:
    """It ends a process with the thread that has started it."""
    actors = Actors(tmp_path)
    actors.start()
    wait_for((tmp_path / "1").exists, "the first one", START_S)
    actors._processes[0].kill()
    wait_for((tmp_path / "2").exists, "the second one", START_S)
    os.kill(actors._processes[0].pid, signal.SIGSTOP)  # which delays no SIGTERM either
    actors.stop()
    assert actors._processes[0].returncode == 7


def is_actor(pid: int) -> bool:
    return b"\0actor\0" in command(pid)


@pytest.mark.slow
def test_no_process_of_a_killed_run_is_left_and_the_run_goes_on(tmp_path: Path) -> None:
    with cluster(tmp_path, "gossip.replicas=2", "actor.processes=1") as it:
        first = it.train()

        def all_running() -> tuple[set[int], set[int]] | None:
            first.runs()
            learners = first.children()
            actors = {pid for learner in learners for pid in children(learner) if is_actor(pid)}
            return (learners, actors) if len(actors) == 2 else None

        learners, actors = wait_for(all_running, "two learners and two actors", START_S)
        family = learners | actors
        family |= set(map(guarded, family))
        locked_by = guarded(first.pid)
        sockets = [it.run / f"learner-{rank}" / "learner.sock" for rank in range(2)]
        wait_for(lambda: all(at.exists() for at in sockets), "both listen", START_S)
        for pid in (min(learners), max(actors)):
            os.kill(guarded(pid), signal.SIGSTOP)
        first.send(signal.SIGKILL)
        first.wait()
        try:
            wait_for(lambda: not any(map(parent, family)), "all are gone", 5)
        finally:
            for pid in filter(parent, family):
                os.kill(pid, signal.SIGKILL)

        it.overrides = (*it.overrides, "stop.env_frames=1000")
        second = it.train()
        assert second.wait() == 0, second.said
        assert f"was locked by process {locked_by}" in second.said
        assert "taken over" in second.said
