"""Actor process: a few groups of environments, which alternate."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from seedbed.config import Experiment
from seedbed.envs import make_actor_env
from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.guard import leaving
from seedbed.runtime.http import start_metrics_server
from seedbed.runtime.signals import on_stop_signals
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics

log = logging.getLogger(__name__)

# Spot nodes give 15 s between SIGTERM and SIGKILL. A step and a goodbye take far less.
DRAIN_S = 7.0
# An environment that hangs would keep its thread, and so the process.
EXIT_S = 9.0


class Actor:
    """Groups of one actor process.

    Args:
        experiment: its sections `environment` and `actor`, and its seed.
        address: learner, or several learners, as `LearnerSelection` reads it.
        index: index of the actor in the run, from which the seeds follow.
        credentials: credentials of this process.
        env_frames: as of `ActorLoop`.

    Attributes:
        experiment: the experiment.
        index: index of the actor.
        metrics: counts of this process.
    """

    def __init__(
        self,
        experiment: Experiment,
        address: str,
        index: int,
        credentials: Credentials = PLAIN,
        env_frames: int | None = None,
    ) -> None:
        self.experiment = experiment
        self._address = address
        self.index = index
        self._credentials = credentials
        self._env_frames = env_frames
        self.metrics = ActorMetrics()

    def loop(self, group: int) -> ActorLoop:
        """Return the loop of a group.

        Args:
            group: number of the group, from 0.
        """
        settings = self.experiment.actor
        loop = ActorLoop(
            partial(make_actor_env, self.experiment, self.index, group),
            self._address,
            f"{socket.gethostname()}/{os.getpid()}/{self.index}/{group}",
            settings.reply_timeout_s,
            settings.connect_timeout_s,
            self.metrics,
            self._credentials,
            settings.max_environment_failures,
            self._env_frames,
        )
        loop.group.unroll_length = self.experiment.learner.unroll_length
        return loop

    def loops(self) -> Sequence[ActorLoop]:
        """Return the loop of each group."""
        loops = [self.loop(group) for group in range(self.experiment.actor.groups)]
        if self._env_frames is not None:
            # One after the other: a learner that starts on the same cores trains by the first one
            # while the others open their environments.
            for before, loop in pairwise(loops):
                loop.before = before
        return loops

    async def _run(self) -> None:
        actor_loops = self.loops()
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(actor_loop.run()) for actor_loop in actor_loops]

        def stop(signal_name: str) -> None:
            log.info("%s: draining", signal_name)
            for actor_loop in actor_loops:
                actor_loop.stop()
            loop.call_later(DRAIN_S, lambda: [task.cancel() for task in tasks])
            last = threading.Timer(EXIT_S, _exit_hanging)
            last.daemon = True
            last.start()

        def on_signal(name: str) -> None:
            loop.call_soon_threadsafe(stop, name)

        on_stop_signals(on_signal)
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            log.warning("not every group had ended within %g s of the signal", DRAIN_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def run(self) -> None:
        """Step until the experiment is over or a signal comes. Main thread only.

        Raises:
            SeedbedError: a group failed, or the metrics port is taken (BIND).
        """
        http = start_metrics_server(self.experiment.actor.metrics_port, self.metrics.registry)
        try:
            channels.run(self._run())
        finally:
            if http is not None:
                http.close()


def _exit_hanging() -> None:
    log.error("an environment did not come back within %g s of the signal: ending", EXIT_S)
    leaving()
    os._exit(ExitCode.ENVIRONMENT)
