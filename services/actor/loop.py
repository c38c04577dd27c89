"""Actor loop: steps one vector environment with the actions of a learner.

The event loop awaits the actions. A thread of the group steps its environments, so that the other
groups of the actor continue meanwhile.
"""

import asyncio
import contextlib
import itertools
import logging
import math
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import numpy as np

from seedbed.envs.failures import FAILURE_WINDOW_S, REFUSED
from seedbed.rpc import channels, thread_call
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.local.addresses import socket_of
from seedbed.rpc.local.packets import Metadata
from seedbed.rpc.local.steps import StepCall
from seedbed.rpc.reconnect import FATAL, Attempts, describe, details_of
from seedbed.rpc.spaces import spaces_to_wire
from seedbed.rpc.step_codec import Actions, Step, act, kind_of
from seedbed.rpc.streams import write
from seedbed.rpc.thread_call import ThreadCall
from seedbed.rpc.versions import (
    ERROR_KEY,
    HELLO_KEY,
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
)
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.text import printable
from seedbed.services.actor.lasting import Lasting
from seedbed.services.actor.learner_selection import LearnerSelection, NoCapacity
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.spec import TimeStep, VectorEnv, pack_flags
from seedbed.v1 import inference_pb2 as wire

log = logging.getLogger(__name__)

# Polls for the sockets of a learner of this machine, for the second one once its own is there, and
# the pause between them.
_SOCKET_POLLS, _OWN_POLLS, _SOCKET_POLL_S = 50, 5, 0.02
# Longest wait for the first unroll of the group before.
_BEFORE_S = 10.0
# Longest wait until the learner has read the goodbye, which a stream that is cancelled may lose.
_GOODBYE_S = 1.0

_Steps = Generator[Step, Actions, None]
_Result = TypeVar("_Result")


def _next(steps: _Steps, actions: Actions | None = None) -> Step | None:
    """Return the step after some actions, or None at the end; without actions the first step."""
    try:
        return next(steps) if actions is None else steps.send(actions)
    except StopIteration:
        return None


class ExperimentFinished(Exception):
    """The learner reports that the experiment is over."""


class LearnerUnresponsive(Exception):
    """The learner sent nothing in time, sent a wrong message, or ended the stream."""


class _LeavesUnanswered(Exception):
    """The group leaves its learner, which has yet to answer a step."""


def make_hello(env: VectorEnv, name: str) -> wire.Hello:
    """Return the Hello of a stream of `env`, with a new incarnation."""
    spec = env.spec
    return wire.Hello(
        protocol_version=PROTOCOL_VERSION,
        oldest_protocol_version=OLDEST_PROTOCOL_VERSION,
        incarnation=secrets.randbits(63),
        actor=name,
        environment=spec.name,
        environments=env.num_envs,
        observation=wire.ArraySpec(shape=spec.observation.shape, dtype=spec.observation.dtype),
        actions=spec.actions,
        action_repeat=spec.action_repeat,
        **spaces_to_wire(spec),
    )


def _wrong_numbers(error: grpc.aio.AioRpcError) -> str:
    """Return why the learner refused a reward or an observation; "" for any other status."""
    detail = dict(error.trailing_metadata() or ()).get(ERROR_KEY, b"")
    wrong = wire.StreamError.FromString(detail).field in ("reward", "observation")
    return details_of(error) if wrong else ""


def make_step(
    time_step: TimeStep, sequence: int, environment_s: float = 0.0, wait_s: float = 0.0
) -> Step:
    """Return a time step as a message.

    Args:
        time_step: not copied, so write the message before the next step.
        sequence: number of the step in its stream, from 0.
        environment_s: seconds that the environments took for it.
        wait_s: seconds that the actor waited for the actions that led to it.
    """
    return Step(
        sequence,
        np.ascontiguousarray(time_step.observation).data.cast("B"),
        time_step.reward.tobytes(),
        pack_flags(time_step),
        environment_s,
        wait_s,
    )


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
        steps_in_thread: whether the thread of the environments sends and receives itself, to a
            learner of this machine through shared memory.
        before: group whose first unroll comes before these environments are made; None: none.
        unroll_length: T, steps of an unroll.
        plays: set once the first unroll is sent, or the group has ended.
    """

    steps_in_thread = True
    before: "ActorLoop | None" = None
    unroll_length = 1

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
        self._make = make
        self._env: VectorEnv | None = None
        self._env_frames = env_frames
        self._begun: TimeStep | None = None  # first step of the first stream
        self._reset_before: VectorEnv | None = None  # environments that have begun once
        self._learners = LearnerSelection(address, name, credentials)
        self._address = address  # of the present stream's learner
        self._less_loaded: asyncio.Task[None] | None = None  # done once the group should move
        self._name = name
        self._reply_timeout_s = reply_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._metrics = metrics
        self._credentials = credentials
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"environments {name}")
        self._stopping = asyncio.Event()
        self.plays = asyncio.Event()
        # Failures of environments that the metrics have counted.
        self._failures = Counter[str]()
        self._answered = False  # whether the present stream has received actions
        self._late, self._lost = Lasting(), Lasting()
        self._welcomed = False  # whether the learner has accepted its Hello
        # When the learner refused the environments' numbers.
        self._refusals: deque[float] = deque(maxlen=max_failures)

    def stop(self) -> None:
        """Leave the learner after the present step. Event loop only."""
        self._stopping.set()

    async def run(self) -> None:
        """Step until the experiment is over or `stop`.

        Raises:
            SeedbedError: the learner rejected the group, no learner answered for too long, or the
                environment failed.
        """
        try:
            await self._wait_for_turn()
            if not self._stopping.is_set():
                await self._play_until_over(await self._begin_env())
        except ExperimentFinished as finished:
            log.info("%s: the experiment is over: %s", self._name, finished)
        finally:
            self.plays.set()
            await self._close_env()
            self._thread.shutdown(wait=False)

    async def _wait_for_turn(self) -> None:
        """Wait for the first unroll of the group before, for ten seconds at most."""
        if self.before is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.before.plays.wait(), _BEFORE_S)

    async def _begin_env(self) -> VectorEnv:
        """Make the environments, and begin their episodes where the frames so far are known.

        That takes as long as a learner on the same cores takes to load its backend.
        """
        env = await self._make_env()
        if self._env_frames is not None and not self._stopping.is_set():
            env.incarnation = self._env_frames
            self._begun = await self._in_thread(self._reset, env)
        return env

    async def _make_env(self) -> VectorEnv:
        self._env = await self._in_thread(self._make)
        self._failures.clear()
        return self._env

    async def _close_env(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            await self._in_thread(env.close)

    async def _play_until_over(self, env: VectorEnv) -> None:
        learners = self._learners
        attempts = Attempts(jitter=False, stable_s=math.inf, stop=self._stopping)
        last_answer, reconnects = time.monotonic(), 0
        async for _ in attempts:
            self._answered = self._welcomed = failed = False
            self._late.end()
            wrong = ""
            try:
                self._address = await learners.choose(env.num_envs)
                await self._play(env)
                if self._stopping.is_set():
                    return
                cause = f"it leaves {self._address} for an emptier learner"
            except grpc.aio.AioRpcError as error:
                if self._welcomed and (wrong := _wrong_numbers(error)):
                    env = await self._replace_env(wrong)
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
            if self._answered:
                attempts.reset()
                self._lost.end()
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
            if failed and learners.several and not self._answered:
                attempts.skip_pause()
                when = "the others"
            # The first attempts log no warning: an actor often starts before its learner.
            level = logging.WARNING if wrong or reconnects > 3 else logging.INFO
            if wrong or self._lost.is_due(cause, waited):
                since = f" (no answer for {waited:.0f} s)" if waited >= 1 else ""
                log.log(level, "%s: %s; trying %s%s", self._name, cause, when, since)

    async def _replace_env(self, cause: str) -> VectorEnv:
        """Make the environments anew, whose numbers the learner refused."""
        self._metrics.on_failures(Counter({REFUSED: 1}))
        self._refusals.append(time.monotonic())
        most, recent = self._refusals.maxlen, self._refusals[-1] - self._refusals[0]
        if len(self._refusals) == most and recent < FAILURE_WINDOW_S:
            raise SeedbedError(
                ExitCode.ENVIRONMENT,
                f"{self._name}: {most} failures of environments within ten minutes "
                f"(actor.max_environment_failures is {most}): {cause}",
            )
        await self._close_env()
        self._begun = self._reset_before = None
        return await self._make_env()

    async def _play(self, env: VectorEnv) -> None:
        """Serve one stream of `act`."""
        if self._address.startswith("unix:"):
            await self._wait_for_socket()
        hello = self._hello(env)
        of_hello = (HELLO_KEY, hello.SerializeToString())
        metadata: Metadata = (*self._credentials.metadata(), of_hello)
        if (local := self._open_local(env, metadata)) is not None:
            await self._serve(env, hello, local)
            return
        if self.steps_in_thread and thread_call.is_available():
            call = ThreadCall(self._address, self._credentials, metadata, self._thread)
            await self._serve(env, hello, call)
            return
        async with channels.aio_channel(self._address, self._credentials) as channel:
            await self._serve(env, hello, act(channel)(metadata=metadata))

    async def _wait_for_socket(self) -> None:
        """Wait for the socket of a learner that starts beside this actor, for a second at most."""
        own = Path(self._address.removeprefix("unix:"))
        shared = Path(socket_of(self._address) or own) if self.steps_in_thread else own
        polls = _SOCKET_POLLS
        # A learner without shared memory has its own socket alone.
        while polls and not shared.exists():
            polls = min(polls - 1, _OWN_POLLS) if own.exists() else polls - 1
            await asyncio.sleep(_SOCKET_POLL_S)

    def _open_local(self, env: VectorEnv, metadata: Metadata) -> StepCall | None:
        """Open a stream through shared memory to a learner of this machine, if that is possible."""
        path = socket_of(self._address)
        if path is None or not self.steps_in_thread:
            return None
        spec = env.spec
        step_bytes = env.num_envs * (spec.observation.row_bytes + 4 + 1)  # a reward, flags
        try:
            return StepCall(path, metadata, step_bytes)
        except OSError as error:
            log.debug("%s: no shared memory with %s: %s", self._name, self._address, error)
            return None

    async def _serve(self, env: VectorEnv, hello: wire.Hello, call: Any) -> None:
        """Await Welcome on a stream, and step until its end.

        Args:
            env: the environments.
            hello: their Hello.
            call: the stream, which is ended.
        """
        self._less_loaded = less_loaded = asyncio.create_task(
            self._learners.wait_for_less_loaded(self._address, env.num_envs)
        )
        try:
            welcome = await self._unless_stopped(self._handshake(call, hello))
            if welcome is None:
                return
            self._welcomed = True
            if self._lost.is_known and self._lost.is_due("accepted", 0.0):
                log.info("%s: the learner at %s has accepted it", self._name, self._address)
            self._metrics.connected_groups.add(self._name)
            reply_timeout_s = max(self._reply_timeout_s, 2 * welcome.notice_interval_seconds)
            # After a restart of the learner or the actor, the same seeds would begin the same
            # episodes again.
            env.incarnation = welcome.env_frames
            with contextlib.suppress(_LeavesUnanswered):
                await self._step(env, call, reply_timeout_s)
            reason = "the actor moves" if less_loaded.done() else "the actor stops"
            await self._leave(call, reason)
        finally:
            self._metrics.connected_groups.discard(self._name)
            less_loaded.cancel()
            call.cancel()

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, _Result]) -> _Result | None:
        """Return what a coroutine returns; None where `stop` comes first, which cancels it."""
        task = asyncio.ensure_future(waiting)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            stopping.cancel()

    async def _leave(self, call: Any, reason: str) -> None:
        """Say goodbye, and wait for a moment until the learner ends the stream."""
        await write(call, wire.ActorMessage(goodbye=wire.Goodbye(reason=reason)))
        await call.done_writing()
        with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError):
            async with asyncio.timeout(_GOODBYE_S):
                while await call.read() is not grpc.aio.EOF:
                    pass

    def _hello(self, env: VectorEnv) -> wire.Hello:
        return make_hello(env, self._name)

    @property
    def _is_leaving(self) -> bool:
        """Whether the group is to leave the present stream's learner."""
        moves = self._less_loaded is not None and self._less_loaded.done()
        return self._stopping.is_set() or moves

    async def _step(self, env: VectorEnv, call: Any, reply_timeout_s: float) -> None:
        """Step with the learner's actions until the actor is to leave this learner.

        Resets the environments, because the learner has dropped the last stream's unroll.

        Args:
            env: the environments.
            call: the stream, after Welcome.
            reply_timeout_s: longest wait for a message of the learner.

        Raises:
            _LeavesUnanswered: the actor is to leave while the learner is late.
        """
        steps = self._steps(env)
        if isinstance(call, StepCall | ThreadCall):
            # Without the event loop, whose turns cost more than a message.
            loop = asyncio.get_running_loop()
            sent = partial(loop.call_soon_threadsafe, self.plays.set)
            await self._in_thread(self._step_in_thread, steps, call, reply_timeout_s, sent)
            return
        step = await self._in_thread(_next, steps)
        while step is not None:
            await write(call, step)
            if step.sequence == self.unroll_length:
                self.plays.set()
            actions = await self._read_reply(call, "actions", step.sequence, reply_timeout_s)
            step = await self._in_thread(_next, steps, actions)

    def _step_in_thread(
        self,
        steps: _Steps,
        call: StepCall | ThreadCall,
        reply_timeout_s: float,
        sent: Callable[[], object],
    ) -> None:
        """Do as `_step` does, in the thread of the environments alone."""
        with call.blocking(reply_timeout_s):
            step = _next(steps)
            while step is not None:
                call.send(step)
                if step.sequence == self.unroll_length:
                    sent()
                actions = None
                while actions is None:
                    try:
                        message = call.receive()
                    except TimeoutError:
                        raise self._silent(reply_timeout_s) from None
                    actions = self._reply_in(message, "actions", step.sequence)
                step = _next(steps, actions)

    def _steps(self, env: VectorEnv) -> _Steps:
        """Step the environments: yield each step to send, and take the actions for it."""
        started = time.perf_counter()
        time_step, self._begun = self._begun or self._reset(env), None
        environment_s, wait_s = time.perf_counter() - started, 0.0
        for sequence in itertools.count():
            sent = time.perf_counter()
            actions = yield make_step(time_step, sequence, environment_s, wait_s)
            got = time.perf_counter()
            action = env.spec.action.read(actions.action, env.num_envs)
            if self._is_leaving:
                return
            time_step = env.step(action)
            environment_s, wait_s = time.perf_counter() - got, got - sent
            self._metrics.on_step(env.num_envs, environment_s, wait_s)
            self._on_steps(env)

    def _reset(self, env: VectorEnv) -> TimeStep:
        """Start new episodes, which an earlier stream has not played."""
        if env is self._reset_before:
            return env.reset_again()
        self._reset_before = env
        return env.reset()

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the thread of the environments."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    def _on_steps(self, env: VectorEnv) -> None:
        """Note that the learner has answered, and count the failures of the environments."""
        if env.failures and env.failures != self._failures:
            self._metrics.on_failures(Counter(env.failures) - self._failures)
            self._failures = Counter(env.failures)
        self._answered = True

    async def _handshake(self, call: Any, hello: wire.Hello) -> wire.Welcome:
        message = await self._read(call, self._reply_timeout_s)
        kind = kind_of(message)
        if kind != "welcome" or message.welcome.incarnation != hello.incarnation:
            raise LearnerUnresponsive(f"expected welcome for {hello.incarnation}, received {kind}")
        welcome: wire.Welcome = message.welcome
        return welcome

    async def _read_reply(self, call: Any, kind: str, sequence: int, timeout_s: float) -> Any:
        """Return the next message that is no notice.

        Args:
            call: the stream.
            kind: `actions`, which must be those for `sequence`, or `parameters`.
            sequence: number of the step that waits.
            timeout_s: longest wait for a message.
        """
        while True:
            message = await self._read(call, timeout_s)
            if (reply := self._reply_in(message, kind, sequence)) is not None:
                return reply

    def _reply_in(self, message: Any, kind: str, sequence: int) -> Any:
        """Return the reply in a message, or None of a notice, which is logged.

        Args:
            message: an `Actions` or LearnerMessage, or EOF.
            kind: as of `_read_reply`.
            sequence: as of `_read_reply`.

        Raises:
            LearnerUnresponsive: it is another message, or the stream has ended.
            ExperimentFinished: the experiment is over.
            _LeavesUnanswered: it is a notice, and the group is to leave. A learner that waits for
                another one, which has no actors, answers none of its own.
        """
        if isinstance(message, Actions) and kind == "actions" and message.sequence == sequence:
            self._late.end()
            return message
        self._check(message)
        received = kind_of(message)
        if received == "actions":
            received = f"those for {message.sequence}"
        elif received == kind:
            self._late.end()
            return message.parameters
        elif received == "notice":
            late, reason = message.notice.waited_seconds, printable(message.notice.reason)
            if self._late.is_due(reason, late):
                log.info("%s: the learner is late by %.0f s: %s", self._name, late, reason)
            if self._is_leaving:
                raise _LeavesUnanswered
            return None
        raise LearnerUnresponsive(f"expected {kind} for step {sequence}, received {received}")

    def _silent(self, timeout_s: float) -> LearnerUnresponsive:
        return LearnerUnresponsive(
            f"nothing from {self._address} for {timeout_s:g} s (actor.reply_timeout_s)"
        )

    def _check(self, message: Any) -> None:
        """Raise where a message is the end of the stream, or of the experiment."""
        if message is grpc.aio.EOF:
            # Without an error: the learner stops.
            raise LearnerUnresponsive(f"{self._address} ended the stream")
        if not isinstance(message, Actions) and message.HasField("finished"):
            raise ExperimentFinished(printable(message.finished.reason))

    async def _read(self, call: Any, timeout_s: float) -> Any:
        """Return the next `Actions` or LearnerMessage."""
        try:
            async with asyncio.timeout(timeout_s):
                message: Any = await call.read()
        except TimeoutError:
            raise self._silent(timeout_s) from None
        self._check(message)
        return message
