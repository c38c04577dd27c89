"""Actor processes of `seedbed train`."""

import subprocess
import threading
from collections.abc import Callable
from typing import IO

from typing_extensions import override

from seedbed.config import Experiment
from seedbed.launch.supervisor import Supervisor, start_seedbed
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.calls import VARIABLE, ProcessCalls, shared_memory
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.threads import Threads

_POLL_S = 1.0


class LocalActors(Supervisor):
    """Keeps `actor.processes` actors running, restarted from a thread of its own.

    Args:
        experiment: the resolved experiment.
        run: the learner's run directory, which gets the actors' logs.
        address: the address at which the learner listens.
        threads: the learner's threads, which fail when actors keep failing.
        rank: number of the learner, or of the host, among all. It keeps their episodes apart.
        env_frames: returns the frames of the run so far.
    """

    name = "actor"
    window_s = 60.0
    too_many = ExitCode.ACTORS_FAILED
    fatal = (ExitCode.CONFIG, ExitCode.USAGE, ExitCode.ENVIRONMENT, ExitCode.REFUSED_BY_LEARNER)
    stop_timeout_s = 8.0

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        address: str,
        threads: Threads,
        rank: int,
        env_frames: Callable[[], int],
    ) -> None:
        super().__init__(experiment.actor.processes, run.logs)
        self._settings, self._run, self._address = experiment.actor, run, address
        self._threads, self._rank, self._env_frames = threads, rank, env_frames
        self._environment = experiment.environment.id
        # Of each actor, by its index.
        self._memory: dict[int, int] = {}
        self._calls: dict[int, ProcessCalls] = {}
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="actors", daemon=True)

    @override
    def start(self) -> None:
        super().start()
        self._watcher.start()

    @override
    def stop(self) -> None:
        self._stopping.set()
        if self._watcher.ident is None:  # not every actor could be started
            super().stop()
        else:
            self._watcher.join()

    @override
    def start_process(self, index: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        if index not in self._memory:
            self._memory[index] = shared_memory()
            self._calls[index] = ProcessCalls(self._memory[index])
        self._calls[index].end()  # those of a process that has ended
        memory = self._memory[index]
        arguments = ["actor", str(self._run.experiment_yaml), "--learner", self._address]
        arguments += ["--index", str(self._number(index)), f"--env-frames={self._env_frames()}"]
        # All actors are on one machine, so each one serves its metrics at a port of its own.
        if port := self._settings.metrics_port:
            arguments += ["--set", f"actor.metrics_port={port + index}"]
        return start_seedbed(
            *arguments,
            overrides={VARIABLE: str(memory)},
            stdout=errors,
            stderr=errors,
            pass_fds=(memory,),
        )

    def _number(self, index: int) -> int:
        return self._rank * self._settings.processes + index

    def waiting(self) -> str:
        """Return the call into an environment that takes longest, in words; "" if none is long."""
        calls = [
            (index, call)
            for index, process in self._calls.copy().items()
            if (call := process.longest) is not None
        ]
        index, call = min(calls, key=lambda item: item[1].since, default=(0, None))
        text = "" if call is None else call.waited_for(self._environment)
        return f"{text} (actor {self._number(index)})" if text else ""

    def _watch(self) -> None:
        try:
            while not (self._stopping.wait(_POLL_S) or self._threads.stopping.is_set()):
                # Exit code 0 counts as well, because a signal ended that actor.
                self.poll()
        except BaseException as error:
            self._threads.fail("actors", error)
        # While the learner ends. In this thread, because the kernel kills with it the actors that
        # it has started.
        super().stop()
