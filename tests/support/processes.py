"""Learners and actors as real processes, to be killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seedbed.runtime.limits import state_and_parent
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
START_S = 240.0  # a process loads TensorFlow first, on a machine that may be busy

EXPERIMENT = """
name: bad-days
environment: {id: CartPole-v1}
agent: vtrace
actor: {processes: 2, envs_per_group: 2, connect_timeout_s: 60}
learner:
  network: mlp
  frame_stack: 1
  unroll_length: 8
  batch_size: 8
  checkpoint: {every_s: 0.5}
  inference: {slots: 64, max_batch_envs: 16}
evaluation: {at_end: false}
logging: {interval_s: 0.1}
"""


def python_path() -> str:
    """The tree before what the environment names already."""
    return os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])


class Process:
    """A `seedbed` command.

    Args:
        file_bytes: no file that it writes may become larger; a disk that is full for large files.
        cwd: its working directory.
        module: what runs the command.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        file_bytes: int | None = None,
        cwd: Path = ROOT,
        module: str = "seedbed.cli.main",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"

        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=cwd,
                env={**os.environ, "PYTHONPATH": python_path()},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self.popen.pid
        if file_bytes is not None:  # from here: gRPC's threads would not survive a fork
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    @property
    def said(self) -> str:
        return self._stderr.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait(self, deadline_s: float = START_S) -> int:
        """The exit code."""
        try:
            return self.popen.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {deadline_s:g} s: {self.said}") from None

    def runs(self) -> None:
        """Fail with its own words if it has ended."""
        assert self.popen.poll() is None, f"exit code {self.popen.returncode}: {self.said}"

    def summary(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        lines = self._stdout.read_text().splitlines()
        assert len(lines) == 1, lines
        found: dict[str, Any] = json.loads(lines[0])
        return found

    def last_lines(self) -> list[str]:
        """What `seedbed:` said at the end: the cause, and the code with what to do."""
        return [line for line in self.said.splitlines() if line.startswith("seedbed: ")]

    def children(self) -> set[int]:
        """Processes that it has started."""
        return children(self.pid)


def children(pid: int) -> set[int]:
    """Processes that a process has started; of a guard, those that its guarded process has."""
    return _children(guarded(pid))


def guarded(pid: int) -> int:
    """The process below a guard, which is a fork of it; the process itself without a guard."""
    return next((child for child in _children(pid) if command(child) == command(pid)), pid)


def _children(pid: int) -> set[int]:
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and parent(int(entry.name)) == pid
    }


def command(pid: int) -> bytes:
    """Its command line; empty when it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def parent(pid: int) -> int | None:
    """Who started a process; None when it has gone, or waits only to be reaped."""
    found = state_and_parent(pid)
    return None if found is None or found[0] == "Z" else found[1]


class Cluster:
    """Processes of one run directory; `close` ends what is left of them."""

    def __init__(self, path: Path, *overrides: str) -> None:
        self.path, self.run = path, path / "run"
        self.yaml = path / "experiment.yaml"
        self.yaml.write_text(EXPERIMENT)
        self.overrides = overrides
        self._processes: list[Process] = []

    def start(self, command: str, *arguments: str, **options: Any) -> Process:
        """`seedbed command` with the experiment, its overrides, and more arguments."""
        given = [word for override in self.overrides for word in ("--set", override)]
        folder = self.path / f"{len(self._processes)}-{command.replace(' ', '-')}"
        made = Process(folder, *command.split(), str(self.yaml), *given, *arguments, **options)
        self._processes.append(made)
        return made

    def train(self, *arguments: str, **options: Any) -> Process:
        return self.start("train", "--run-dir", str(self.run), *arguments, **options)

    def status(self) -> dict[str, Any]:
        """status.json; empty before there is one."""
        try:
            found: dict[str, Any] = json.loads((self.run / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def counters(self) -> dict[str, Any]:
        return dict(self.status().get("counters", {}))

    def trains(self, by: Process, updates: int = 10) -> dict[str, Any]:
        """Wait until `by` has made so many more updates than it says now, or when it began."""

        def mine() -> dict[str, Any] | None:
            by.runs()
            status = self.status()
            return status if status.get("process", {}).get("pid") == guarded(by.pid) else None

        before = wait_for(mine, f"status.json of {by.pid}: {by.said}", START_S)
        goal = before["counters"]["updates"] + updates
        return dict(
            wait_for(
                lambda: (s := mine()) and s["counters"]["updates"] >= goal and s,
                f"{goal} updates; it said: {by.said}",
                START_S,
            )
        )

    def checkpoints(self) -> list[Path]:
        """Oldest first."""
        return sorted((self.run / "checkpoints").glob("checkpoint-*.safetensors"))

    def close(self) -> None:
        for process in self._processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.popen.wait(10)


@contextmanager
def cluster(path: Path, *overrides: str) -> Iterator[Cluster]:
    made = Cluster(path, *overrides)
    try:
        yield made
    finally:
        made.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
