"""One lock-step group: its environments, its stream, and nothing of the model.

The event loop waits for actions; a thread of the group's own steps its environments, so that the
actor's other groups go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import numpy as np

from seedbed.rpc import channels
from seedbed.rpc.reconnect import FATAL, Attempts, describe
from seedbed.rpc.step_codec import Actions, Step, act
from seedbed.rpc.streams import write
from seedbed.rpc.tls import Tls
from seedbed.rpc.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.actor.learner_selection import Learners, NoRoom
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.spec import TimeStep, VectorEnv
from seedbed.v1 import inference_pb2 as wire

log = logging.getLogger(__name__)


class Finished(Exception):
    """The learner said that the experiment is over."""


class LearnerSilent(Exception):
    """Nothing came from the learner in time."""


def pack_flags(frame: TimeStep) -> bytes:
    """The wire's flags [E] uint8 of a frame."""
    flags = frame.terminated.astype(np.uint8)
    flags |= frame.truncated.astype(np.uint8) << 1
    flags |= frame.life_lost.astype(np.uint8) << 2
    flags |= frame.first.astype(np.uint8) << 3
    return flags.tobytes()


def hello_of(group: VectorEnv, name: str, protocol_version: int = PROTOCOL_VERSION) -> wire.Hello:
    """What a stream of this group begins with, with an incarnation of its own."""
    spec = group.spec
    return wire.Hello(
        protocol_version=protocol_version,
        oldest_protocol_version=min(OLDEST_PROTOCOL_VERSION, protocol_version),
        incarnation=secrets.randbits(63),
        actor=name,
        environment=spec.name,
        environments=group.environments,
        observation=wire.ArraySpec(shape=spec.observation.shape, dtype=spec.observation.dtype),
        actions=spec.actions,
        action_repeat=spec.action_repeat,
    )


def step_of(
    frame: TimeStep, sequence: int, environment_s: float = 0.0, wait_s: float = 0.0
) -> Step:
    """A frame as the stream's message number `sequence`: no copy, so write it before the next."""
    return Step(
        sequence,
        np.ascontiguousarray(frame.observation).reshape(-1).view(np.uint8).data,
        frame.reward.tobytes(),
        pack_flags(frame),
        environment_s,
        wait_s,
    )


class ActorLoop:
    """Plays a group's environments through streams to the learner until it is over.

    Args:
        make: makes the group, in the group's own thread.
        address: of the learner, or of several, as `Learners` reads it.
        name: for logs, such as `host/pid/0`.
        metrics: shared by the groups of an actor.
    """

    def __init__(
        self,
        make: Callable[[], VectorEnv],
        address: str,
        name: str,
        reply_timeout_s: float,
        connect_timeout_s: float,
        metrics: ActorMetrics,
        protocol_version: int = PROTOCOL_VERSION,
        tls: Tls | None = None,
    ) -> None:
        self._make = make
        self._learners = Learners(address, name, tls)
        self._address = address  # of the present stream's learner
        self._name = name
        self._reply_timeout_s = reply_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._metrics = metrics
        self._protocol_version = protocol_version
        self._tls = tls
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"environments {name}")
        self._stopping = asyncio.Event()
        self._answered = False  # whether the present stream has got actions

    def stop(self) -> None:
        """Leave after the step that is under way. Event loop only."""
        self._stopping.set()

    async def run(self) -> None:
        """Until the experiment is over or `stop`.

        Raises:
            SeedbedError: refused by the learner, no learner for too long, or the environment.
        """
        loop = asyncio.get_running_loop()
        group = await loop.run_in_executor(self._thread, self._make)
        try:
            await self._play_until_over(group)
        except Finished as finished:
            log.info("%s: the experiment is over: %s", self._name, finished)
        finally:
            await loop.run_in_executor(self._thread, group.close)
            self._thread.shutdown(wait=False)

    async def _play_until_over(self, group: VectorEnv) -> None:
        learners = self._learners
        attempts = Attempts(jitter=False, stable_s=math.inf, stop=self._stopping)
        last_answer, reconnects = time.monotonic(), 0
        async for _ in attempts:
            self._answered = failed = False
            try:
                self._address = await learners.choose(group.environments)
                async with channels.aio_channel(self._address, self._tls) as channel:
                    await self._play(group, act(channel))
                if self._stopping.is_set():
                    return
                cause = f"it leaves {self._address} for an emptier learner"
            except grpc.aio.AioRpcError as error:
                if error.code() in FATAL:
                    raise SeedbedError(
                        ExitCode.REFUSED_BY_LEARNER,
                        f"the learner at {self._address} refused {self._name} "
                        f"({error.code().name}): {error.details()}",
                    ) from error
                cause, failed = describe(error), True
            except LearnerSilent as error:
                cause, failed = str(error), True
            except NoRoom as error:
                cause = str(error)
            if self._answered:
                attempts.reset()
                last_answer = time.monotonic()
                learners.worked()
            if failed:
                learners.failed(self._address)
            waited = time.monotonic() - last_answer
            if waited > self._connect_timeout_s:
                raise SeedbedError(
                    ExitCode.LEARNER_UNREACHABLE,
                    f"no answer from {learners} for {waited:.0f} s "
                    f"(actor.connect_timeout_s is {self._connect_timeout_s:g}): {cause}",
                )
            reconnects += 1
            self._metrics.on_reconnect()
            when = f"again in {attempts.pause_s:.1f} s"
            if failed and learners.several and not self._answered:
                attempts.skip_pause()
                when = "the others"
            # The first attempts log no warning: an actor often starts before its learner.
            level = logging.WARNING if reconnects > 3 else logging.INFO
            log.log(level, "%s: %s; trying %s", self._name, cause, when)

    async def _play(self, group: VectorEnv, method: Any) -> None:
        """One stream of `act`.

        Its episodes start anew: the learner dropped the last stream's unroll.
        """
        loop = asyncio.get_running_loop()
        call = method()
        better = loop.create_task(self._learners.wait_for_better(self._address, group.environments))
        try:
            welcome = await self._greet(call, group)
            reply_timeout_s = max(self._reply_timeout_s, 2 * welcome.notice_interval_seconds)
            started = time.perf_counter()
            frame = await loop.run_in_executor(self._thread, group.reset)
            environment_s, wait_s, sequence = time.perf_counter() - started, 0.0, 0
            while True:
                sent = time.perf_counter()
                await write(call, step_of(frame, sequence, environment_s, wait_s))
                actions = await self._answer(call, sequence, reply_timeout_s)
                got = time.perf_counter()
                action = np.frombuffer(actions.action, np.int32)
                moves = better.done()
                if self._stopping.is_set() or moves:
                    reason = "the actor moves" if moves else "the actor stops"
                    goodbye = wire.Goodbye(reason=reason)
                    await write(call, wire.ActorMessage(goodbye=goodbye))
                    await call.done_writing()
                    return
                frame = await loop.run_in_executor(self._thread, group.step, action)
                environment_s, wait_s = time.perf_counter() - got, got - sent
                self._metrics.on_step(group.environments, environment_s, wait_s)
                self._answered = True
                sequence += 1
        finally:
            better.cancel()
            call.cancel()

    async def _greet(self, call: Any, group: VectorEnv) -> wire.Welcome:
        hello = hello_of(group, self._name, self._protocol_version)
        await write(call, wire.ActorMessage(hello=hello))
        message = await self._read(call, self._reply_timeout_s)
        if isinstance(message, Actions):
            raise LearnerSilent(f"expected welcome for {hello.incarnation}, received actions")
        kind = message.WhichOneof("message")
        if kind == "finished":
            raise Finished(message.finished.reason)
        if kind != "welcome" or message.welcome.incarnation != hello.incarnation:
            raise LearnerSilent(f"expected welcome for {hello.incarnation}, received {kind}")
        return message.welcome

    async def _answer(self, call: Any, sequence: int, timeout_s: float) -> Actions:
        while True:
            message = await self._read(call, timeout_s)
            if isinstance(message, Actions):
                if message.sequence != sequence:
                    raise LearnerSilent(
                        f"expected actions for step {sequence}, received those for "
                        f"{message.sequence}"
                    )
                return message
            kind = message.WhichOneof("message")
            if kind == "finished":
                raise Finished(message.finished.reason)
            if kind != "notice":
                raise LearnerSilent(f"expected actions for step {sequence}, received {kind}")
            log.info("%s: the learner is late by %.0f s: %s", self._name,
                     message.notice.waited_seconds, message.notice.reason)  # fmt: skip

    async def _read(self, call: Any, timeout_s: float) -> Actions | wire.LearnerMessage:
        try:
            async with asyncio.timeout(timeout_s):
                message: Any = await call.read()
        except TimeoutError:
            raise LearnerSilent(
                f"nothing from {self._address} for {timeout_s:g} s (actor.reply_timeout_s)"
            ) from None
        if message is grpc.aio.EOF:
            # The stream ended without an error: the learner is going down.
            raise LearnerSilent(f"{self._address} ended the stream")
        received: Actions | wire.LearnerMessage = message
        return received


def actor_name(index: int, group: int) -> str:
    """`host/pid/index/group`, for logs."""
    return f"{socket.gethostname()}/{os.getpid()}/{index}/{group}"
