"""The commands of the pages that carry `<!-- run -->` are run, page by page, in their order.

They run as they are written, but for the words that the reader replaces, and for a run's length.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, blocks
from tests.support.users_environment import users_environment

RUN = {page: [b for b in blocks(page) if b.mark == "run"] for page in PAGES}
# Its screen ends with Ctrl-C only, and `timeout` tells of its own success by 124.
TOP = "(script -qec 'timeout -s INT 3 py-spy top --pid PID' /dev/null; [ $? = 124 ])"
REPLACED = {
    "docs/comparing-runs.md": {"3e-4,1e-3,3e-3": "1e-3,3e-3", "--seeds 2": "--seeds 1"},
    "README.md": {"EXPERIMENT.yaml": "experiments/cartpole-vtrace.yaml", " L:": " localhost:"},
    "docs/profiling.md": {
        "PORT": "18999",
        "RUN_DIR": "runs/profiled",
        "--duration 30": "--duration 8",
        "py-spy top --pid PID": TOP,
    },
}
SHORT = "--set stop.env_frames=3000 --set evaluation.episodes=1"
# Each of four learners must come to an update.
LONGER = {"docs/gossip.md": "--set stop.env_frames=40000 --set evaluation.episodes=1"}
SEEDBED = f"""#!/bin/sh
case $* in
*--dry-run*) ;; # it trains nothing, and its other options fit its stop
train* | learner* | sweep*) set -- "$@" $SHORT ;;
esac
exec {sys.executable} -m seedbed.cli.main "$@"
"""
SERVE = ("learner", "actor", "replay")
DEADLINE_S = 400


class Shells:
    """The reader's shells on one machine, in a folder that has `experiments/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._serving: list[tuple[str, subprocess.Popen[str]]] = []
        (folder / "experiments").symlink_to(ROOT / "experiments")
        (folder / "bin").mkdir()
        (folder / "bin/seedbed").write_text(SEEDBED)
        (folder / "bin/seedbed").chmod(0o755)
        path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**users_environment(), "PYTHONPATH": str(ROOT), "PATH": path}

    def run(self, command: str) -> None:
        """Run a command; a server runs on, and `status` is tried until the learner answers."""
        words = shlex.split(command, comments=True)
        if words[0] == "seedbed" and words[1] in SERVE:
            if words[1] != "actor":
                self.wait()
                # The run before has ended, being short, and would not begin again.
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
            self._serving.append((command, self.start(command)))
            return
        if words[0] == "seedbed" and words[1] == "status":
            command = f"until {command}; do sleep 0.1; done"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Wait for what serves; it must end by itself, and well."""
        for command, process in self._serving:
            words = process.communicate(timeout=DEADLINE_S)[1]
            assert process.returncode == 0, f"{command}\n{words[-2000:]}"
        self._serving.clear()

    def kill(self) -> None:
        for _, process in self._serving:
            process.kill()
            process.wait()


@pytest.fixture
def shells(tmp_path: Path) -> Iterator[Shells]:
    made = Shells(tmp_path)
    yield made
    made.kill()


def words_of(page: Path) -> Iterator[str]:
    replaced = REPLACED.get(str(page.relative_to(ROOT)), {})
    for block in RUN[page]:
        for command in block.commands:
            for old, new in replaced.items():
                command = command.replace(old, new)
            yield command


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if RUN[p] and p.stem != "profiling"], ids=str)
def test_the_commands_of_a_page(page: Path, shells: Shells) -> None:
    shells.environment["SHORT"] = LONGER.get(str(page.relative_to(ROOT)), SHORT)
    for command in words_of(page):
        shells.run(command)
    shells.wait()


@pytest.mark.slow
def test_the_commands_of_profiling(shells: Shells) -> None:
    shells.environment["SHORT"] = "--set learner.metrics_port=18999 --set stop.mean_return=null"
    run = shells.start("seedbed train cartpole-vtrace --run-dir runs/profiled")
    try:
        learner = wait_for_updates(shells.folder / "runs/profiled/status.json", run)
        for command in words_of(ROOT / "docs/profiling.md"):
            shells.run(command.replace("PID", str(learner)))
        run.send_signal(signal.SIGINT)
        assert run.wait(DEADLINE_S) == 0
    finally:
        run.kill()
    assert (shells.folder / "learner.svg").stat().st_size > 1000
    assert list((shells.folder / "runs/profiled/profile").rglob("*.xplane.pb"))


def wait_for_updates(status: Path, run: subprocess.Popen[str]) -> int:
    """Wait until the file of the run tells of an update; return the learner's PID."""
    deadline = time.monotonic() + DEADLINE_S
    while not (status.exists() and json.loads(status.read_text())["counters"]["updates"]):
        assert run.poll() is None, run.stderr and run.stderr.read()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    pid: int = json.loads(status.read_text())["process"]["pid"]
    return pid


def test_ports_of_the_pages_are_free() -> None:
    """Say which port is taken before a page's commands fail for it."""
    for port in (8470, 18999):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("0.0.0.0", port))
