"""The actor processes of `seedbed train`: started, watched, started again, ended."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque

from services.common.config import Experiment
from services.common.exit_codes import HELP, ExitCode, SeedbedError
from services.common.lifecycle import Threads
from services.learner.runs.directory import RunDirectory

log = logging.getLogger("seedbed")

_RETRY_S = 1.0
_FAILURES, _WINDOW_S = 5, 60.0
_STOP_S = 12.0
# Starting these again cannot help.
_FATAL = (ExitCode.CONFIG, ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.REFUSED_BY_LEARNER)


class ActorProcesses:
    """Keeps `actor.processes` actors running.

    Args:
        threads: the learner's; it fails when actors keep failing.
    """

    def __init__(
        self, experiment: Experiment, run: RunDirectory, address: str, threads: Threads
    ) -> None:
        self._experiment = experiment
        self._run = run
        self._address = address
        self._threads = threads
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._failures: deque[float] = deque()
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
            sys.executable, "-m", "services.cli.main", "actor", str(self._run.experiment_yaml),
            "--learner", self._address, "--index", str(index),
            "--die-with-parent", str(os.getpid()),
        ]  # fmt: skip
        if port := self._experiment.actor.metrics_port:  # all on one machine
            command += ["--set", f"actor.metrics_port={port + index}"]
        with (self._run.logs / f"actor-{index}.log").open("ab") as output:
            self._processes[index] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
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
        what = f"actor {index} ended with {_describe(code)}"
        where = f"see {self._run.logs / f'actor-{index}.log'}"
        now = time.monotonic()
        self._failures.append(now)
        while now - self._failures[0] > _WINDOW_S:
            self._failures.popleft()
        if code in _FATAL:
            raise SeedbedError(ExitCode(code), f"{what}; {where}")
        if len(self._failures) >= _FAILURES * max(1, self._experiment.actor.processes):
            raise SeedbedError(
                ExitCode.ACTORS_FAILED,
                f"{what}, failure {len(self._failures)} of actors within {_WINDOW_S:g} s; {where}",
            )
        log.warning("%s; started again; %s", what, where)
        self._start(index)

    def stop(self) -> None:
        """End them: SIGTERM, then SIGKILL for those that did not leave in time."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for index, process in self._processes.items():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("actor %d did not end within %g s of SIGTERM: killed", index, _STOP_S)
                process.kill()
                process.wait()


def _describe(code: int) -> str:
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    try:
        return f"exit code {code} ({ExitCode(code).name}: {HELP[ExitCode(code)]})"
    except ValueError:
        return f"exit code {code}"
