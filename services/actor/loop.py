"""Actor loop: a group of environments, stream after stream, until the experiment is over.

The event loop chooses the learners. The thread of the group makes the environments and steps them
with a `StepLoop`, so that the other groups of the actor continue meanwhile.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import grpc.aio

from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.local.addresses import socket_of
from seedbed.rpc.reconnect import FATAL, Attempts, describe, details_of
from seedbed.rpc.versions import ERROR_KEY
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.actor.environments import Environments
from seedbed.services.actor.learner_selection import LearnerSelection, NoCapacity
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.services.actor.step_loop import (
    ExperimentFinished,
    Group,
    LearnerUnresponsive,
    StepLoop,
)
from seedbed.spec import VectorEnv
from seedbed.v1 import inference_pb2 as wire

log = logging.getLogger(__name__)

# Polls for the sockets of a learner of this machine, for the second one once its own is there, and
# the pause between them.
_SOCKET_POLLS, _OWN_POLLS, _SOCKET_POLL_S = 50, 5, 0.02
# Longest wait for the first unroll of the group before.
_BEFORE_S = 10.0


def _wrong_numbers(error: grpc.aio.AioRpcError) -> str:
    """Return why the learner refused a reward or an observation; "" for any other status."""
    detail = dict(error.trailing_metadata() or ()).get(ERROR_KEY, b"")
    wrong = wire.StreamError.FromString(detail).field in ("reward", "observation")
    return details_of(error) if wrong else ""


class MakeStepLoop(Protocol):
    """Makes the `StepLoop` of a stream, from the same arguments."""

    def __call__(
        self,
        group: Group,
        address: str,
        why_leaving: Callable[[], str],
        loop: asyncio.AbstractEventLoop,
    ) -> StepLoop:
        """Return the loop of a stream."""


class ActorLoop:
    """Steps a vector environment, stream after stream, until the experiment is over.

    Args:
        make: makes the vector environment, in the group's own thread.
        address: learner, or several learners, as `LearnerSelection` reads it.
        name: name of the group for logs, such as `host/pid/0`.
        reply_timeout_s: longest wait for a message of the learner.
        connect_timeout_s: longest time without any actions.
        metrics: shared by the groups of an actor.
        credentials: credentials of this process.
        max_failures: refusals of the environments' numbers within ten minutes after which `run`
            raises; an earlier one makes the environments anew.
        env_frames: frames of the run so far, with which the first stream begins its episodes
            before a learner answers; None: with those that the learner tells.

    Attributes:
        make_step_loop: makes the loop of each stream.
        before: group whose first unroll comes before these environments are made; None: none.
        group: the group, as its streams have it.
        plays: set once the first unroll is sent, or the group has ended.
    """

    before: "ActorLoop | None" = None

    def __init__(
        self,
        make: Callable[[], VectorEnv],
        address: str,
        name: str,
        reply_timeout_s: float,
        connect_timeout_s: float,
        metrics: ActorMetrics,
        credentials: Credentials = PLAIN,
        max_failures: int = 10,
        env_frames: int | None = None,
    ) -> None:
        self.make_step_loop: MakeStepLoop = StepLoop
        self._environments = Environments(make, name, metrics, max_failures)
        self.group = Group(name, self._environments, metrics, reply_timeout_s)
        self.group.credentials = credentials
        self._env_frames = env_frames
        self._learners = LearnerSelection(address, name, credentials)
        self._address = address  # of the present stream's learner
        self._name = name
        self._connect_timeout_s = connect_timeout_s
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"environments {name}")
        self._stopping = asyncio.Event()
        self.plays = asyncio.Event()

    def stop(self) -> None:
        """Leave the learner after the present step. Event loop only."""
        self._stopping.set()

    async def run(self) -> None:
        """Step until the experiment is over or `stop`.

        Raises:
            SeedbedError: the learner rejected the group, no learner answered for too long, or the
                environment failed.
        """
        loop = asyncio.get_running_loop()
        self.group.on_unroll = lambda: loop.call_soon_threadsafe(self.plays.set)
        try:
            await self._wait_for_turn()
            if not self._stopping.is_set():
                env = await self._in_thread(self._environments.make)
                if self._env_frames is not None and not self._stopping.is_set():
                    await self._in_thread(self._environments.begin, self._env_frames)
                await self._play_until_over(env.num_envs)
        except ExperimentFinished as finished:
            log.info("%s: the experiment is over: %s", self._name, finished)
        finally:
            self.plays.set()
            await self._in_thread(self._environments.close)
            self._thread.shutdown(wait=False)

    async def _wait_for_turn(self) -> None:
        """Wait for the first unroll of the group before, for ten seconds at most."""
        if self.before is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.before.plays.wait(), _BEFORE_S)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the thread of the group."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    async def _play_until_over(self, num_envs: int) -> None:
        learners, lost = self._learners, self.group.lost
        attempts = Attempts(jitter=False, stable_s=math.inf, stop=self._stopping)
        last_answer, reconnects = time.monotonic(), 0
        async for _ in attempts:
            stream: StepLoop | None = None
            failed = False
            self.group.late.end()
            wrong = ""
            try:
                self._address = await learners.choose(num_envs)
                less_loaded = asyncio.create_task(
                    learners.wait_for_less_loaded(self._address, num_envs)
                )
                stream = self._step_loop(less_loaded)
                await self._play(stream, less_loaded)
                if self._stopping.is_set():
                    return
                cause = f"it leaves {self._address} for an emptier learner"
            except grpc.aio.AioRpcError as error:
                if stream is not None and stream.welcomed and (wrong := _wrong_numbers(error)):
                    await self._in_thread(self._environments.replace, wrong)
                    cause, last_answer = f"{wrong}; its environments are new", time.monotonic()
                elif error.code() in FATAL:
                    raise SeedbedError(
                        ExitCode.REFUSED_BY_LEARNER,
                        f"the learner at {self._address} refused {self._name} "
                        f"({error.code().name}): {details_of(error)}",
                    ) from error
                else:
                    cause, failed = describe(error), True
            except LearnerUnresponsive as error:
                cause, failed = str(error), True
            except NoCapacity as error:
                cause = str(error)
            answered = stream is not None and stream.answered
            if answered:
                attempts.reset()
                lost.end()
                last_answer = time.monotonic()
                learners.on_success()
            if failed:
                learners.on_failure(self._address)
            waited = time.monotonic() - last_answer
            if waited > self._connect_timeout_s:
                raise SeedbedError(
                    ExitCode.LEARNER_UNREACHABLE,
                    f"no answer from {learners} for {waited:.0f} s "
                    f"(actor.connect_timeout_s is {self._connect_timeout_s:g}): {cause}",
                )
            reconnects += 1
            self._metrics.reconnects += 1
            when = f"again in {attempts.pause_s:.1f} s"
            if failed and learners.several and not answered:
                attempts.skip_pause()
                when = "the others"
            # The first attempts log no warning: an actor often starts before its learner.
            level = logging.WARNING if wrong or reconnects > 3 else logging.INFO
            if wrong or lost.is_due(cause, waited):
                since = f" (no answer for {waited:.0f} s)" if waited >= 1 else ""
                log.log(level, "%s: %s; trying %s%s", self._name, cause, when, since)

    def _step_loop(self, less_loaded: asyncio.Task[None]) -> StepLoop:
        """Return the loop of a stream to the present learner.

        Args:
            less_loaded: ends once the group should move to another learner.
        """

        def why_leaving() -> str:
            if less_loaded.done():
                return "the actor moves"
            return "the actor stops" if self._stopping.is_set() else ""

        loop = asyncio.get_running_loop()
        return self.make_step_loop(self.group, self._address, why_leaving, loop)

    async def _play(self, stream: StepLoop, less_loaded: asyncio.Task[None]) -> None:
        """Play on one stream until the group leaves its learner, at once before Welcome."""
        if self._address.startswith("unix:"):
            await self._wait_for_socket(stream.shares_memory)
        playing = asyncio.ensure_future(self._in_thread(stream.run))
        # Where the group is cancelled, nobody awaits how its stream ends.
        playing.add_done_callback(lambda done: done.cancelled() or done.exception())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done() or stream.welcomed:
                await playing
                return
            stream.end()
            with contextlib.suppress(LearnerUnresponsive, grpc.aio.AioRpcError):
                await playing
        finally:
            stopping.cancel()
            less_loaded.cancel()
            stream.end()

    async def _wait_for_socket(self, shares_memory: bool) -> None:
        """Wait for the socket of a learner that starts beside this actor, for a second at most.

        Args:
            shares_memory: whether the one of its local streams is wanted, too.
        """
        own = Path(self._address.removeprefix("unix:"))
        shared = Path(socket_of(self._address) or own) if shares_memory else own
        polls = _SOCKET_POLLS
        # A learner without shared memory has its own socket alone.
        while polls and not shared.exists():
            polls = min(polls - 1, _OWN_POLLS) if own.exists() else polls - 1
            await asyncio.sleep(_SOCKET_POLL_S)
