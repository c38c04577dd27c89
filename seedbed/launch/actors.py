"""The actor processes of `seedbed train`."""

from __future__ import annotations

import threading
from pathlib import Path

from seedbed.config import Experiment
from seedbed.launch.supervisor import Command, RestartPolicy, Supervisor, last_cause
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.threads import Threads

_POLL_S = 1.0
_FAILURES, _WINDOW_S = 5, 60.0
_STOP_TIMEOUT_S = 12.0
# A restart cannot help after these.
_FATAL = (ExitCode.CONFIG, ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.REFUSED_BY_LEARNER)
_TAIL_BYTES = 4096


class LocalActors:
    """Keeps `actor.processes` actors running, restarted from a thread of its own.

    Args:
        experiment: the resolved experiment.
        run: the learner's run directory, which gets the actors' logs.
        address: the address at which the learner listens.
        threads: the learner's threads, which fail when actors keep failing.
        rank: rank of the learner. It keeps episodes of different learners apart.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        address: str,
        threads: Threads,
        rank: int = 0,
    ) -> None:
        self._experiment, self._run, self._address = experiment, run, address
        self._threads, self._rank = threads, rank
        count = experiment.actor.processes
        self._policy = RestartPolicy(
            "actor", _FAILURES * max(1, count), _WINDOW_S, ExitCode.ACTORS_FAILED, _FATAL
        )
        self._supervisor = Supervisor("actor", count, self._command, self._on_exit, _STOP_TIMEOUT_S)
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="actors", daemon=True)

    def start(self) -> None:
        """Start the actors, and the thread that restarts them."""
        self._supervisor.start_all()
        self._watcher.start()

    def stop(self) -> None:
        """Terminate the actors."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self._supervisor.terminate_all()

    def _command(self, index: int) -> Command:
        number = self._rank * self._experiment.actor.processes + index
        arguments = ["actor", str(self._run.experiment_yaml), "--learner", self._address]
        arguments += ["--index", str(number)]
        # All actors are on one machine, so each one serves its metrics at a port of its own.
        if port := self._experiment.actor.metrics_port:
            arguments += ["--set", f"actor.metrics_port={port + index}"]
        return Command(arguments, self._log(index))

    def _watch(self) -> None:
        try:
            while not self._stopping.wait(_POLL_S):
                # Exit code 0 counts as well, because a signal ended that actor. When the learner
                # stops, all actors end by themselves.
                if not self._threads.stopping.is_set():
                    self._supervisor.poll()
        except BaseException as error:
            self._threads.fail("actors", error)

    def _log(self, index: int) -> Path:
        return self._run.logs / f"actor-{index}.log"

    def _on_exit(self, index: int, code: int) -> bool:
        path = self._log(index)
        where = f"its last words: {last_cause(_tail(path))!r}; see {path}"
        return self._policy.on_exit(index, code, where)


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")
