"""Actor processes of `seedbed train`."""

import subprocess
import threading
from collections.abc import Callable
from typing import IO

from typing_extensions import override

from seedbed.config import Experiment
from seedbed.envs.calls import GRACE_S, Call, CallRecord, map_records, shared_memory
from seedbed.launch.supervisor import Supervisor, start_seedbed
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
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
        # The calls of each actor's groups, by its index.
        self._memory: dict[int, int] = {}
        self._calls: dict[int, list[CallRecord]] = {}
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
        groups = self._settings.groups
        if index not in self._memory:
            self._memory[index] = shared_memory(groups)
            self._calls[index] = map_records(self._memory[index], groups)
        for record in self._calls[index]:  # of a process that has ended
            record.end()
        memory = self._memory[index]
        arguments = ["actor", str(self._run.experiment_yaml), "--learner", self._address]
        arguments += ["--index", str(self._number(index)), f"--env-frames={self._env_frames()}"]
        arguments += ["--calls", str(memory)]
        # All actors are on one machine, so each one serves its metrics at a port of its own.
        if port := self._settings.metrics_port:
            arguments += ["--set", f"actor.metrics_port={port + index}"]
        return start_seedbed(*arguments, stdout=errors, stderr=errors, pass_fds=(memory,))

    def _number(self, index: int) -> int:
        return self._rank * self._settings.processes + index

    def waiting(self) -> str:
        """Return the call into an environment that takes longest, in words; "" if none is long."""
        if (longest := self._longest()) is None:
            return ""
        index, call = longest
        text = call.waited_for(self._environment)
        return f"{text} (actor {self._number(index)})" if text else ""

    def _longest(self) -> tuple[int, Call] | None:
        calls = [
            (index, call)
            for index, records in self._calls.copy().items()
            for record in records
            if (call := record.call) is not None
        ]
        return min(calls, key=lambda item: item[1].since, default=None)

    def _check_calls(self) -> None:
        """Raise where an actor has not ended for a call that took longer than its limit.

        The call holds the interpreter lock, so that no thread of the actor could do it.

        Raises:
            SeedbedError: ENVIRONMENT.
        """
        limit_s, longest = self._settings.environment_timeout_s, self._longest()
        if limit_s and longest is not None and longest[1].busy_s > limit_s + GRACE_S:
            text = longest[1].late(self._environment, limit_s)
            raise SeedbedError(
                ExitCode.ENVIRONMENT, f"{self.name} {self._number(longest[0])}: {text}"
            )

    def _watch(self) -> None:
        try:
            while not (self._stopping.wait(_POLL_S) or self._threads.stopping.is_set()):
                # Exit code 0 counts as well, because a signal ended that actor.
                self.poll()
                self._check_calls()
        except BaseException as error:
            self._threads.fail("actors", error)
        # While the learner ends. In this thread, because the kernel kills with it the actors that
        # it has started.
        super().stop()
