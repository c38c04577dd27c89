"""The actor processes of `seedbed train`: started, watched, started again, ended."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

from seedbed.config import Experiment
from seedbed.launch.child_processes import Restarts, end_all, process_environment
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.threads import Threads

log = logging.getLogger(__name__)

_RETRY_S = 1.0
_FAILURES, _WINDOW_S = 5, 60.0
_STOP_S = 12.0
# Starting these again cannot help.
_FATAL = (ExitCode.CONFIG, ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.REFUSED_BY_LEARNER)


class ActorProcesses:
    """Keeps `actor.processes` actors running.

    Args:
        threads: the learner's; it fails when actors keep failing.
        rank: of the learner: no two learners' actors play the same episodes.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        address: str,
        threads: Threads,
        rank: int = 0,
    ) -> None:
        self._first = rank * experiment.actor.processes
        self._experiment = experiment
        self._run = run
        self._address = address
        self._threads = threads
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._restarts = Restarts(
            "actor",
            _FAILURES * max(1, experiment.actor.processes),
            *(_WINDOW_S, ExitCode.ACTORS_FAILED, _FATAL),
        )
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="actors", daemon=True)

    def start(self) -> None:
        """Start them all, and the thread that watches them."""
        for index in range(self._experiment.actor.processes):
            self._start(index)
        self._watcher.start()

    @property
    def pids(self) -> list[int]:
        """Of those that run."""
        return [p.pid for p in self._processes.values() if p.poll() is None]

    def _start(self, index: int) -> None:
        command = [
            sys.executable, "-m", "seedbed.cli.main", "actor", str(self._run.experiment_yaml),
            "--learner", self._address, "--index", str(self._first + index),
            "--die-with-parent", str(os.getpid()),
        ]  # fmt: skip
        if port := self._experiment.actor.metrics_port:  # all on one machine
            command += ["--set", f"actor.metrics_port={port + index}"]
        with (self._run.logs / f"actor-{index}.log").open("ab") as output:
            self._processes[index] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=process_environment(),
            )

    def _watch(self) -> None:
        try:
            while not self._stopping.wait(_RETRY_S):
                for index, process in list(self._processes.items()):
                    # With 0 too: someone has sent it SIGTERM. At the end all leave by themselves.
                    ended = process.poll() is not None
                    if ended and not self._threads.stopping.is_set():
                        self._again(index, process.returncode)
        except BaseException as error:
            self._threads.fail("actors", error)

    def _again(self, index: int, code: int) -> None:
        path = self._run.logs / f"actor-{index}.log"
        self._restarts.allow(index, code, f"its last words: {_last_line(path)!r}; see {path}")
        self._start(index)

    def stop(self) -> None:
        """End them: SIGTERM, then SIGKILL for those that did not leave in time."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        end_all("actor", self._processes, _STOP_S)


def _last_line(path: Path) -> str:
    """What an actor said of its end; the line after that only explains the exit code."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").split("\n")
    said = [x for x in lines if x.strip() and not x.startswith("seedbed: exit code")]
    return said[-1][:500] if said else ""
