"""Vector environment whose environments are divided over worker processes.

For environments that hold the interpreter lock, or are slow. The group steps in lock step, as all
do; its time steps are those of the same environments in one process, bit for bit.
"""

import logging
import math
import os
import select
import time
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config.environment import Environment
from seedbed.envs.actions import check_actions
from seedbed.envs.failures import HUNG, WORKER_DIED, Failures
from seedbed.envs.workers.block import Block
from seedbed.envs.workers.process import Share, WorkerProcess
from seedbed.envs.workers.worker import RESET, RESTART, STEP
from seedbed.packed import read_environment_spec
from seedbed.runtime import calls
from seedbed.runtime.calls import WAITING, Call, map_records, records_bytes, shared_memory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import EnvironmentSpec, TimeStep, VectorEnv

# How often the calls of workers are looked at.
_LOOK_S = 1.0
# Longest time in which the workers close their environments; an actor has seconds in all.
CLOSE_S = 3.0

log = logging.getLogger(__name__)


class WorkerVectorEnv(VectorEnv):
    """E environments in W processes, each of which steps its share one after the other.

    A worker that dies or hangs is replaced. The episodes of its environments are cut, and their
    step is the first of a new episode; no other environment notices. The processes end with the
    thread that makes this object.

    Args:
        environment: the experiment's section.
        seeds: [E], one for each environment.
        workers: W, at most E.
        max_failures: failures within ten minutes after which `reset` and `step` raise; a worker's
            end counts as one.
        timeout_s: seconds after which a worker is killed, one of whose calls into an environment
            has not come back; 0: never.
        needs_lives: as of `make_vector_env`.
        record: as of `make_vector_env`.

    Raises:
        SeedbedError: the environments cannot be made.
        ImportError: a package that they need is not there.
    """

    def __init__(
        self,
        environment: Environment,
        seeds: Sequence[int],
        workers: int,
        max_failures: int,
        timeout_s: float,
        needs_lives: bool = False,
    ) -> None:
        self.num_envs = e = len(seeds)
        self._name = environment.id
        self._told: Call | None = None
        self._record = calls.PROCESS.record()
        self._failures = Failures(environment.id, max_failures)
        self.failures = self._failures.counts
        self._timeout_s = timeout_s or math.inf
        self._specs: list[EnvironmentSpec] = []  # of every worker so far
        self._workers: list[WorkerProcess] = []
        self._memory = shared_memory(records_bytes(workers))
        self._calls = map_records(self._memory, workers)
        bounds = [e * k // workers for k in range(workers + 1)]
        try:
            for k in range(workers):
                rows = slice(bounds[k], bounds[k + 1])
                share = Share(
                    environment, k, workers, e, rows, list(seeds[rows]), max_failures,
                    self._memory, needs_lives,
                )  # fmt: skip
                self._workers.append(WorkerProcess(share))
            self._wait(range(workers), None)
            self.spec = self._specs[0]
            self._block = Block(self._memory, self.spec, e, workers)
        except BaseException:
            self.close()
            raise

    @override
    def reset(self) -> TimeStep:
        for worker in self._workers:
            worker.send(RESET, self.incarnation)
        self._wait(range(len(self._workers)), self.incarnation)
        return self._block.read()

    @override
    def step(self, action: NDArray[Any]) -> TimeStep:
        check_actions(action, self.num_envs, self.spec.action)
        self._block.action[:] = action
        for worker in self._workers:
            worker.send(STEP)
        self._wait(range(len(self._workers)), self.incarnation)
        return self._block.read()

    @override
    def restart(self, time_step: TimeStep, chosen: NDArray[np.bool_]) -> None:
        self._block.chosen[:] = chosen
        asked = [k for k, worker in enumerate(self._workers) if chosen[worker.share.rows].any()]
        for k in asked:
            self._workers[k].send(RESTART)
        self._wait(asked, self.incarnation)
        for k in asked:
            self._block.read_into(self._workers[k].share.rows, time_step)

    @override
    def close(self) -> None:
        deadline = time.monotonic() + CLOSE_S
        workers, self._workers = self._workers, []
        # All at once, each until the one deadline.
        for worker in workers:
            worker.channel.close()
        for worker in workers:
            worker.close(deadline)
        vars(self).pop("_block", None)  # gives the memory back
        self._calls = []
        calls.PROCESS.release(self._record)
        WAITING.note(self, "")
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _wait(self, asked: Sequence[int], incarnation: int | None) -> None:
        """Wait until workers have answered; replace the ones that die or are late.

        Args:
            asked: indices of the workers.
            incarnation: of the present episodes; None: there are none yet.
        """
        poll = select.poll()
        by_descriptor: dict[int, int] = {}

        def watch(k: int) -> None:
            for descriptor in (self._workers[k].channel.fileno(), self._workers[k].ended):
                poll.register(descriptor, select.POLLIN)
                by_descriptor[descriptor] = k

        def forget(k: int) -> None:
            for descriptor in (self._workers[k].channel.fileno(), self._workers[k].ended):
                poll.unregister(descriptor)
                del by_descriptor[descriptor]

        for k in asked:
            watch(k)
        while by_descriptor:
            waiting = set(by_descriptor.values())
            ready = {by_descriptor[it] for it, _ in poll.poll(self._patience_ms(waiting))}
            late = set() if ready else {k for k in waiting if self._left_s(k) <= 0}
            if not ready:
                self._tell(waiting)
            for k in ready:
                # A worker may have answered before its end.
                message = self._workers[k].receive()
                if message is None:
                    forget(k)
                    self._replace(k, incarnation, WORKER_DIED)
                    watch(k)
                elif self._take(self._workers[k], message):
                    forget(k)
            for k in late:
                forget(k)
                self._replace(k, incarnation, HUNG)
                watch(k)
        if self._told is not None:
            self._told = None
            self._record.end()
            WAITING.note(self, "")

    def _begun(self, k: int) -> Call | None:
        """Return the call of a worker since its newest command; None where none has begun."""
        call = self._calls[k].call
        return None if call is None or call.since < self._workers[k].since else call

    def _call(self, k: int) -> Call:
        """Return the call of a worker; between two calls, or before the first, the next one."""
        worker, record = self._workers[k], self._calls[k]
        call = self._begun(k)
        if call is None:
            kind = calls.CONSTRUCTION if worker.starting else calls.STEP
            since = max(worker.since, record.changed_at)
            call = Call(kind, worker.share.rows.start, since)
        return call

    def _left_s(self, k: int) -> float:
        """Return the time until a worker is late."""
        if self._workers[k].starting and self._begun(k) is None:
            return math.inf  # the interpreter starts
        return self._timeout_s - self._call(k).busy_s

    def _patience_ms(self, waiting: Collection[int]) -> float:
        """Return the time until the first worker is late, or until the next look at the calls."""
        left_s = min(map(self._left_s, waiting)) if self._timeout_s < math.inf else math.inf
        return 1e3 * min(_LOOK_S, max(0.0, left_s)) + 1.0

    def _tell(self, waiting: Collection[int]) -> None:
        call = min(map(self._call, waiting), key=lambda call: call.since)
        text = call.waited_for(self._name)
        WAITING.note(self, text)
        self._record.copy(call)
        if text and call != self._told:
            log.warning("%s", text)
        self._told = call

    def _take(self, worker: WorkerProcess, message: dict[str, Any]) -> bool:
        """Take a message; return whether it is the last one that was waited for."""
        if "error" in message:
            raise SeedbedError(ExitCode(message["code"]), message["error"])
        if "missing" in message:
            raise ImportError(message["missing"])
        if "spec" in message:
            spec = read_environment_spec(message["spec"])
            self._specs.append(spec)
            if spec != self._specs[0]:
                raise SeedbedError(
                    ExitCode.ENVIRONMENT,
                    f"{worker.share.name} has made {spec}, and another one {self._specs[0]}: all "
                    "environments of a group must have the same spaces",
                )
            return not worker.resets
        for cause, times in message.get("failures", {}).items():
            self._failures.add(cause, times)
        if "last" in message:
            self._failures.check(message["last"])
        return True

    def _replace(self, k: int, incarnation: int | None, cause: str) -> None:
        """Start a worker in the place of one that is over, unless there were too many failures."""
        old = self._workers[k]
        call = self._call(k)
        how = old.kill()
        if cause == HUNG:
            how = f"was ended: {call.late(self._name, self._timeout_s)}"
        else:
            how = f"was ended by {how}" if how.startswith("signal") else f"ended with {how}"
        inside = None if cause == HUNG else self._calls[k].call
        where = f", in the {inside.named(self._name)}" if inside is not None else ""
        recent = self._failures.add(cause)
        log.error(
            "%s %s%s (%s, %d of at most %d within ten minutes)",
            *(old.share.name, how, where, cause, recent, self._failures.most),
        )
        self._failures.check(f"{old.share.name} {how}{where}")
        self._calls[k].end()
        if incarnation is not None:
            # Other episodes than before, because the old ones would lead to the same end.
            incarnation += self._failures.counts.total() << 48
        self._workers[k] = WorkerProcess(old.share, incarnation)
