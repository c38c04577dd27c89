"""One stream of a group with its learner: Hello, steps and actions, Goodbye."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.hello import hello_metadata
from seedbed.rpc.step_codec import Actions, kind_of
from seedbed.rpc.stream import StreamEnded, UnreadableMessage
from seedbed.rpc.stream_factory import ActorStream, open_actor_stream
from seedbed.runtime.text import printable
from seedbed.services.actor.environments import Environments
from seedbed.services.actor.lasting import Lasting
from seedbed.services.actor.messages import make_hello, make_step
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.v1 import inference_pb2 as wire

log = logging.getLogger(__name__)

# Longest wait until the learner has read the goodbye, which a stream that is cancelled may lose.
_GOODBYE_S = 1.0


class ExperimentFinished(Exception):
    """The learner reports that the experiment is over."""


class LearnerUnresponsive(Exception):
    """The learner sent nothing in time, sent a wrong message, or ended the stream."""


class _LeavesUnanswered(Exception):
    """The group leaves its learner, which has yet to answer a step."""


@dataclass(eq=False)
class Group:
    """Group of environments, as all its streams have it.

    Attributes:
        name: name for logs, such as `host/pid/0`.
        environments: its environments.
        metrics: shared by the groups of an actor.
        reply_timeout_s: longest wait for a message of the learner.
        unroll_length: T, steps of an unroll.
        credentials: credentials of this process.
        on_unroll: called in the thread of the group once its first unroll is sent.
        late: decides which answers that are late are logged.
        lost: decides which lost connections are logged.
    """

    name: str
    environments: Environments
    metrics: ActorMetrics
    reply_timeout_s: float
    unroll_length: int = 1
    credentials: Credentials = PLAIN
    on_unroll: Callable[[], object] = lambda: None
    late: Lasting = field(default_factory=Lasting)
    lost: Lasting = field(default_factory=Lasting)


class StepLoop:
    """Steps environments with the actions of a learner, on one stream.

    Args:
        group: the group, whose thread calls `run`.
        address: address of the learner.
        why_leaving: returns why the group is to leave the learner; "" while it is not to.
        loop: event loop of another thread, as `open_actor_stream` takes it.

    Attributes:
        shares_memory: whether messages are small enough for shared memory with a learner of this
            machine.
        welcomed: whether the learner has accepted the Hello.
        answered: whether the learner has sent actions.
    """

    shares_memory = True

    def __init__(
        self,
        group: Group,
        address: str,
        why_leaving: Callable[[], str],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._group, self._address, self._loop = group, address, loop
        self._why_leaving = why_leaving
        self._env = group.environments.env
        self._stream: ActorStream | None = None
        self._is_ended = False
        self._reply_timeout_s = group.reply_timeout_s
        self.welcomed = self.answered = False

    def run(self) -> None:
        """Play from Hello until the group leaves the learner.

        Raises:
            ExperimentFinished: the experiment is over.
            LearnerUnresponsive: as it tells.
            grpc.aio.AioRpcError: the learner has ended the stream with a status, or is gone.
        """
        group, hello = self._group, self._hello()
        metadata = hello_metadata(hello, group.credentials)
        spec = self._env.spec
        step_bytes = self._env.num_envs * (spec.observation.row_bytes + 4 + 1)  # a reward, flags
        with contextlib.closing(
            open_actor_stream(
                self._address,
                group.credentials,
                metadata,
                step_bytes if self.shares_memory else 0,
                self._loop,
            )
        ) as stream:
            self._stream = stream
            if self._is_ended:  # meanwhile
                stream.end()
            try:
                self._begin(stream, hello)
                with contextlib.suppress(_LeavesUnanswered):
                    self._play(stream)
                self._leave(stream)
            finally:
                group.metrics.connected_groups.discard(group.name)

    def end(self) -> None:
        """End the stream, without a goodbye. Any thread."""
        self._is_ended = True
        if self._stream is not None:
            self._stream.end()

    def _hello(self) -> wire.Hello:
        return make_hello(self._env, self._group.name)

    def _begin(self, stream: ActorStream, hello: wire.Hello) -> None:
        """Wait for Welcome."""
        group = self._group
        message = self._receive(stream)
        if isinstance(message, Actions) or not message.HasField("welcome"):
            raise LearnerUnresponsive(f"expected welcome, received {kind_of(message)}")
        welcome = message.welcome
        if welcome.incarnation != hello.incarnation:
            raise LearnerUnresponsive(
                f"expected welcome for {hello.incarnation}, received one for {welcome.incarnation}"
            )
        self.welcomed = True
        if group.lost.is_known and group.lost.is_due("accepted", 0.0):
            log.info("%s: the learner at %s has accepted it", group.name, self._address)
        group.metrics.connected_groups.add(group.name)
        self._reply_timeout_s = max(group.reply_timeout_s, 2 * welcome.notice_interval_seconds)
        # After a restart of the learner or the actor, the same seeds would begin the same episodes
        # again.
        self._env.incarnation = welcome.env_frames

    def _play(self, stream: ActorStream) -> None:
        """Step with the learner's actions until the group is to leave this learner.

        Begins new episodes, because the learner has dropped the last stream's unroll.

        Raises:
            _LeavesUnanswered: the group is to leave while the learner is late.
        """
        group, env = self._group, self._env
        started = time.perf_counter()
        time_step = group.environments.first_step()
        environment_s, wait_s = time.perf_counter() - started, 0.0
        for sequence in itertools.count():
            sent = time.perf_counter()
            stream.send(make_step(time_step, sequence, environment_s, wait_s))
            if sequence == group.unroll_length:
                group.on_unroll()
            actions = self._reply(stream, "actions", sequence)
            got = time.perf_counter()
            action = env.spec.action.read(actions.action, env.num_envs)
            if self._why_leaving():
                return
            time_step = env.step(action)
            environment_s, wait_s = time.perf_counter() - got, got - sent
            self._on_step(environment_s, wait_s)

    def _on_step(self, environment_s: float, wait_s: float) -> None:
        """Count a step, and the failures of the environments."""
        group = self._group
        group.metrics.on_step(self._env.num_envs, environment_s, wait_s)
        group.environments.count_failures()
        self.answered = True

    def _leave(self, stream: ActorStream) -> None:
        """Say goodbye, and wait for a moment until the learner ends the stream."""
        goodbye = wire.Goodbye(reason=self._why_leaving())
        stream.send(wire.ActorMessage(goodbye=goodbye), is_last=True)
        until = time.monotonic() + _GOODBYE_S
        with contextlib.suppress(TimeoutError, ConnectionError, grpc.aio.AioRpcError):
            while (left_s := until - time.monotonic()) > 0:
                stream.receive(left_s)

    def _reply(self, stream: ActorStream, kind: str, sequence: int) -> Any:
        """Return the next reply. Notices before it are logged.

        Args:
            stream: the stream.
            kind: `actions`, which must be those for `sequence`, or `parameters`.
            sequence: number of the step that waits.

        Raises:
            LearnerUnresponsive: it is another message, or none.
            ExperimentFinished: the experiment is over.
            _LeavesUnanswered: it is a notice, and the group is to leave. A learner that waits for
                another one, which has no actors, answers none of its own.
        """
        group = self._group
        while True:
            message = self._receive(stream)
            if isinstance(message, Actions):
                if kind == "actions" and message.sequence == sequence:
                    group.late.end()
                    return message
                received = f"those for {message.sequence}"
            else:
                received = str(kind_of(message))
                if received == kind:
                    group.late.end()
                    return message.parameters
                if received == "notice":
                    self._on_notice(message.notice)
                    continue
            raise LearnerUnresponsive(f"expected {kind} for step {sequence}, received {received}")

    def _on_notice(self, notice: wire.Notice) -> None:
        late, reason = notice.waited_seconds, printable(notice.reason)
        if self._group.late.is_due(reason, late):
            log.info("%s: the learner is late by %.0f s: %s", self._group.name, late, reason)
        if self._why_leaving():
            raise _LeavesUnanswered

    def _receive(self, stream: ActorStream) -> Actions | wire.LearnerMessage:
        """Return the next message."""
        try:
            message = stream.receive(self._reply_timeout_s)
        except TimeoutError:
            raise LearnerUnresponsive(
                f"nothing from {self._address} for {self._reply_timeout_s:g} s "
                "(actor.reply_timeout_s)"
            ) from None
        except StreamEnded:  # without an error: the learner stops
            raise LearnerUnresponsive(f"{self._address} ended the stream") from None
        except UnreadableMessage as error:
            raise LearnerUnresponsive(f"{self._address}: {error}") from error
        if not isinstance(message, Actions) and message.HasField("finished"):
            raise ExperimentFinished(printable(message.finished.reason))
        return message
