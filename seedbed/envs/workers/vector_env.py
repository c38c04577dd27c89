"""Vector environment whose environments are divided over worker processes.

For environments that hold the interpreter lock, or are slow. The group steps in lock step, as all
do; its time steps are those of the same environments in one process, bit for bit.
"""

import logging
import math
import os
import select
import time
from collections.abc import Sequence
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
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import EnvironmentSpec, TimeStep, VectorEnv

# Least time for a worker to start and to make its environments.
START_S = 600.0
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
        timeout_s: seconds after which a worker whose step or reset has not come back is killed,
            and at least ten minutes while it starts; 0: never.
        needs_lives: as of `make_vector_env`.

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
        self._failures = Failures(environment.id, max_failures)
        self.failures = self._failures.counts
        self._timeout_s = timeout_s or math.inf
        self._specs: list[EnvironmentSpec] = []  # of every worker so far
        self._workers: list[WorkerProcess] = []
        self._memory = os.memfd_create("seedbed-group")
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
            ready = {by_descriptor[it] for it, _ in poll.poll(self._patience_ms(by_descriptor))}
            late = set() if ready else {k for k in by_descriptor.values() if self._left_s(k) <= 0}
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

    def _left_s(self, k: int) -> float:
        """Return the time until a worker is late."""
        worker = self._workers[k]
        limit_s = max(START_S, self._timeout_s) if worker.starting else self._timeout_s
        return worker.since + limit_s - time.monotonic()

    def _patience_ms(self, by_descriptor: dict[int, int]) -> float | None:
        """Return the time until the first worker is late; None: none ever is."""
        if self._timeout_s == math.inf:
            return None
        return max(0.0, 1e3 * min(map(self._left_s, by_descriptor.values()))) + 1.0

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
        waited_s = time.monotonic() - old.since
        how = old.kill()
        if cause == HUNG:
            how = (
                f"has not come back for {waited_s:.1f} s (actor.worker_timeout_s is "
                f"{self._timeout_s:g})"
            )
        else:
            how = f"was ended by {how}" if how.startswith("signal") else f"ended with {how}"
        inside = -1 if incarnation is None else int(self._block.current[k])
        where = f", in environment {old.share.rows.start + inside}" if inside >= 0 else ""
        recent = self._failures.add(cause)
        log.error(
            "%s %s%s (%s, %d of at most %d within ten minutes)",
            *(old.share.name, how, where, cause, recent, self._failures.most),
        )
        self._failures.check(f"{old.share.name} {how}{where}")
        if incarnation is not None:
            self._block.current[k] = -1
            # Other episodes than before, because the old ones would lead to the same end.
            incarnation += self._failures.counts.total() << 48
        self._workers[k] = WorkerProcess(old.share, incarnation)
