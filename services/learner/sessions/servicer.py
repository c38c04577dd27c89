"""Servicer of actor streams."""

import asyncio
import json
import logging
import secrets
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config import Experiment
from seedbed.rpc.credentials import Denial
from seedbed.rpc.local.steps import StepContext
from seedbed.rpc.step_codec import Actions, Step, kind_of
from seedbed.rpc.streams import OpenStreams, StreamRejected
from seedbed.rpc.versions import HELLO_KEY
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import counted, printable
from seedbed.services.learner.components import ComponentsFuture
from seedbed.services.learner.sessions.batcher import Batcher, Request
from seedbed.services.learner.sessions.handshake import Handshake, check_first_spec, validate_hello
from seedbed.services.learner.sessions.rejections import InvalidStep
from seedbed.services.learner.sessions.session import Session
from seedbed.services.learner.sessions.slots import SlotAllocator, exploration_of
from seedbed.services.learner.unrolls.queue import CompletedUnroll, UnrollQueue
from seedbed.services.learner.unrolls.synchronous_queue import SynchronousUnrollQueue
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.telemetry import Telemetry
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.learner.unrolls.sequences import SequencePlan

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Stream:
    """State of one stream, shared by its own coroutine and the housekeeping task.

    Attributes:
        learner_since: since when the learner must send; None while the actor must.
        actor_since: since when the actor must send, or when its newest message came.
        batcher: takes its requests; known once its session is there.
        noticed: when the newest notice was sent.
    """

    context: Any
    handshake: Handshake
    number: int
    task: asyncio.Task[Any]
    slots: NDArray[np.int32]
    batcher: Batcher
    session: Session | None = None
    request: Request | None = None
    answer: asyncio.Future[None] | None = None
    learner_since: float | None = None
    actor_since: float = 0.0
    noticed: float = 0.0
    notice: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Let the coroutine go on, which awaits `answer`."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(None)


def _hello_of(context: Any) -> wire.Hello:
    """Return the Hello of the call's metadata.

    Raises:
        InvalidStep: there is none, or it is not a Hello.
    """
    data = dict(context.invocation_metadata()).get(HELLO_KEY)
    wrong = "nothing"
    if isinstance(data, bytes):
        with suppress(DecodeError):
            return wire.Hello.FromString(data)
        wrong = "bytes that are none"
    advice = "see Act in proto/seedbed/v1/inference.proto"
    raise InvalidStep("hello", f"Hello in the metadata {HELLO_KEY}", wrong, advice)


class InferenceServicer(wire_grpc.InferenceServicer):
    """Answers `Act` streams through the batcher, and puts complete unrolls into the queue.

    One coroutine a stream, all in one event loop.

    Args:
        experiment: its `environment.id` and `learner` settings are read.
        queue: takes the unrolls.
        telemetry: receives counts and times.
        components: built for the first actor's spec; awaited with notices.

    Attributes:
        batchers: take the requests, one for each device that acts.
        takes_local_streams: whether its streams may be local ones, which carry steps.
    """

    takes_local_streams = True

    def __init__(
        self,
        experiment: Experiment,
        queue: UnrollQueue,
        telemetry: Telemetry,
        components: ComponentsFuture,
    ) -> None:
        self._experiment = experiment
        self._settings = experiment.learner
        self._queue = queue
        self._telemetry = telemetry
        self._components = components
        self.batchers = [self._new_batcher()]
        self._slots = SlotAllocator(self._settings.inference.slots)
        if isinstance(queue, SynchronousUnrollQueue):
            self._slots = SlotAllocator(self._settings.host_batch_size, "learner.batch_size")
        self._log = PeerLog(log)
        self._open = OpenStreams("the learner stops", self._on_rejected, invalid=())
        self._streams: dict[int, Stream] = {}
        self._numbers = 0
        self._incarnation = secrets.randbits(63)
        self._ending: str | None = None  # why the learner ends
        self._over = False  # whether the experiment is over too
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        # Batches that are computed, and of which the event loop does not know yet.
        self._computed: deque[list[Request]] = deque()

    def _new_batcher(self) -> Batcher:
        inference = self._settings.inference
        return Batcher(inference.batch_envs, inference.max_batch_envs, inference.max_wait_ms / 1000)

    def add_batcher(self) -> Batcher:
        """Return the batcher of another device that acts. Before the components are there."""
        self.batchers.append(self._new_batcher())
        return self.batchers[-1]

    # --- streams ---------------------------------------------------------------------------

    @override
    async def Act(self, _: Any, context: Any) -> None:
        await self._open.serve(context, lambda: self._act(context))

    def _on_rejected(self, rejection: StreamRejected) -> None:
        field = getattr(rejection, "field", None)
        self._telemetry.sessions.on_stream_error(field or rejection.code.name.lower())

    def on_denied(self, denial: Denial) -> None:
        """Count a call that was refused for its credential. Event loop only."""
        self._telemetry.sessions.on_stream_error(denial.code.name.lower())

    async def _act(self, context: Any) -> None:
        """Serve one lock-step group, from Hello to the end of its stream."""
        if self._ending is not None:
            await self._end_stream(context)
            return
        try:
            handshake = await self._handshake(_hello_of(context))
            slots = self._slots.allocate(handshake.num_envs)
            self._numbers += 1
            task = asyncio.current_task()
            assert task is not None
            stream = Stream(
                context,
                handshake,
                self._numbers,
                task,
                slots,
                self.batchers[0],
                actor_since=time.perf_counter(),
            )
            self._streams[stream.number] = stream
            self._update_connected()
            environments = counted(handshake.num_envs, "environment")
            sizes = f"{environments} as protocol {handshake.protocol_version}"
            self._log.info(
                "joining", "session %d: %s joins with %s", stream.number, handshake.actor, sizes
            )
            try:
                await self._serve(stream)
            finally:
                self._leave(stream)
        except DecodeError:
            raise InvalidStep(
                "message", "an ActorMessage", "bytes that are none", "see proto/seedbed/v1"
            ) from None

    async def _handshake(self, hello: wire.Hello) -> Handshake:
        handshake = validate_hello(
            hello,
            self._experiment.environment.id,
            await self._components.probed(),
            self._settings,
        )
        if self._components.spec is None:
            check_first_spec(handshake.spec, self._settings)
        self._components.fix_spec(handshake.spec)
        return handshake

    async def _welcome(self, stream: Stream) -> None:
        handshake = stream.handshake
        welcome = wire.Welcome(
            protocol_version=handshake.protocol_version,
            incarnation=handshake.incarnation,
            session=stream.number,
            idle_timeout_seconds=self._settings.idle_timeout_s,
            notice_interval_seconds=self._settings.notice_interval_s,
            learner_incarnation=self._incarnation,
            env_frames=self._telemetry.whole_counters().env_frames,
        )
        await stream.context.write(wire.LearnerMessage(welcome=welcome))

    def _new_session(self, stream: Stream, writers: "UnrollSpec | SequencePlan") -> Session:
        stats, bounds = self._telemetry.sessions, self._experiment.environment.bounds
        return Session(stream.handshake.spec, stream.slots, writers, stats, bounds)

    def _check_goodbye(self, stream: Stream, message: wire.ActorMessage, expected: str) -> None:
        """Log why the actor leaves.

        Args:
            stream: the stream.
            message: what came in place of a step or an unroll.
            expected: `step` or `unroll`.

        Raises:
            InvalidStep: the message is no goodbye.
        """
        kind = kind_of(message)
        if kind != "goodbye":
            raise InvalidStep("message", f"{expected} or goodbye", kind or "nothing", "see Act")
        name, reason = stream.handshake.actor, printable(message.goodbye.reason)
        self._log.info("leaving", "session %d: %s leaves: %s", stream.number, name, reason)

    async def _serve(self, stream: Stream) -> None:
        context = stream.context
        network = None if context.peer().startswith("unix:") else self._telemetry.network
        await self._welcome(stream)
        loop = asyncio.get_running_loop()
        read, write, wake = context.read, context.write, stream.wake
        if is_local := isinstance(context, StepContext):
            context.before_read = self._note_computed
        while True:
            message = await read()
            if message is grpc.aio.EOF:
                return
            stream.actor_since = stream.learner_since = time.perf_counter()
            if not isinstance(message, Step):
                self._check_goodbye(stream, message, "step")
                return
            if stream.session is None:
                writers = await self._components.unroll()
                if len(self.batchers) > 1:
                    stream.batcher = self._emptiest_batcher()
                    self._update_connected()
                stream.session = self._new_session(stream, writers)
            session = stream.session
            unroll = session.receive(message)
            if unroll is not None and not self._queue.try_put(unroll):
                await self._wait_for_room(stream, unroll)
            if self._ending is not None:
                await self._end_stream(context)
                return
            stream.request = request = session.request(wake)
            if is_local:
                request.deliver = partial(context.deliver, message.sequence)
            stream.batcher.submit(request)
            if not request.done:  # as a batch that was computed at once
                stream.answer = loop.create_future()
                await stream.answer
            action = request.action
            stream.request = None
            # The actor must read what is written from here on, and send the next step.
            stream.actor_since, stream.learner_since = time.perf_counter(), None
            if stream.notice is not None:
                await stream.notice  # one writer at a time
            if action is None:
                await self._end_stream(context)
                return
            if not is_local:
                await write(Actions(message.sequence, action))
            if network is not None:
                size = len(message.observation) + len(message.reward) + len(message.flags)
                network.on_step(size, len(action))

    async def _wait_for_room(self, stream: Stream, unroll: CompletedUnroll) -> None:
        frames = unroll.steps * stream.handshake.spec.action_repeat
        stream.batcher.pause()
        try:
            backpressure_s = await self._queue.put(
                unroll, lambda reason: self._telemetry.sessions.on_discarded(frames, reason)
            )
            self._telemetry.sessions.on_backpressure(backpressure_s)
        finally:
            stream.batcher.resume()

    def _leave(self, stream: Stream) -> None:
        slots = stream.slots
        del self._streams[stream.number]
        if stream.notice is not None:
            stream.notice.cancel()
        if stream.session is not None:
            stream.session.close()
        request = stream.request
        self._update_connected()
        if request is not None and not request.done and not stream.batcher.cancel(request):
            # A batch that names these slots is being computed: they are free when it is done.
            request.on_done = lambda: self._slots.free(slots)
        else:
            self._slots.free(slots)
        self._log.info("ended", "session %d: ended", stream.number)

    def _update_connected(self) -> None:
        streams = self._streams.values()
        for batcher in self.batchers:
            own = [stream.handshake.num_envs for stream in streams if stream.batcher is batcher]
            batcher.set_connected(len(own), sum(own))
        stats = self._telemetry.sessions
        stats.connected = len(streams)
        slots = [slot for stream in streams for slot in stream.slots]
        stats.environments = len(slots)
        stats.on_exploration(exploration_of(self._experiment, slots))

    def _emptiest_batcher(self) -> Batcher:
        """Return the batcher of the device that acts for the fewest environments."""
        envs = {id(batcher): 0 for batcher in self.batchers}
        for stream in self._streams.values():
            if stream.session is not None:
                envs[id(stream.batcher)] += stream.handshake.num_envs
        return min(self.batchers, key=lambda batcher: envs[id(batcher)])

    async def _end_stream(self, context: Any) -> None:
        """Tell the actor that the experiment is over, or that only this learner stops."""
        if not self._over:
            raise StreamRejected(
                f"the learner stops: {self._ending}; try again", grpc.StatusCode.UNAVAILABLE
            )
        finished = wire.Finished(reason=self._ending or "")
        await context.write(wire.LearnerMessage(finished=finished))

    # --- from the inference thread ---------------------------------------------------------

    def send_actions(self, batch: list[Request]) -> None:
        """Send the actions of a batch, with one wake-up of the event loop at most. Any thread.

        Local streams are written to from here. Their next messages wake the event loop, which is
        told of the batch by then. The event loop itself needs no wake-up.
        """
        # Before anything is sent, because the next message may come at once.
        self._computed.append(batch)
        is_woken = True
        for request in batch:
            if request.deliver is None:
                is_woken = False
            elif request.action is not None:
                request.deliver(request.action)
        if threading.get_ident() == self._loop_thread:
            self._note_computed()
        elif not is_woken and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note_computed)

    def _note_computed(self) -> None:
        while self._computed:
            self._on_batch_done(self._computed.popleft())

    def _on_batch_done(self, batch: list[Request]) -> None:
        for request in batch:
            request.done = True
            request.on_done()

    # --- housekeeping ----------------------------------------------------------------------

    async def housekeeping(self) -> None:
        """End idle streams and announce late answers, until cancelled."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        interval = self._settings.notice_interval_s
        period = min(interval, self._settings.idle_timeout_s) / 4
        while True:
            await asyncio.sleep(period)
            self._note_computed()
            now = time.perf_counter()
            for stream in list(self._streams.values()):
                if stream.learner_since is None:
                    silent = now - stream.actor_since
                    if silent > self._settings.idle_timeout_s:
                        cause = (
                            f"nothing from the actor for {silent:.1f} s; "
                            f"learner.idle_timeout_s is {self._settings.idle_timeout_s:g}"
                        )
                        deadline = grpc.StatusCode.DEADLINE_EXCEEDED
                        self._open.end(stream.task, StreamRejected(cause, deadline))
                    continue
                late = now - stream.learner_since
                if (
                    late >= interval
                    and now - stream.noticed >= interval
                    and (stream.notice is None or stream.notice.done())
                ):
                    stream.noticed = now
                    stream.notice = asyncio.create_task(self._notify(stream, late))

    async def _notify(self, stream: Stream, late: float) -> None:
        sequence = stream.session.sequence - 1 if stream.session else 0
        reason = self._telemetry.waiting() or "the learner is busy"
        if isinstance(self._queue, SynchronousUnrollQueue) and self._queue.missing:
            reason = f"the round waits for {counted(self._queue.missing, 'environment')}"
        notice = wire.Notice(sequence=max(sequence, 0), reason=reason, waited_seconds=late)
        # If the stream has ended meanwhile, its own coroutine raises why.
        with suppress(grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            await stream.context.write(wire.LearnerMessage(notice=notice))

    def finish(self, reason: str, over: bool) -> None:
        """End every stream, now and later. Event loop only.

        Args:
            reason: why the learner ends.
            over: whether the experiment is over, so that actors leave. Otherwise actors try to
                reach this learner again, or another one.
        """
        self._note_computed()
        self._ending, self._over = reason, over
        self._queue.close()  # which ends the wait for room
        for stream in self._streams.values():
            if stream.answer is not None and not stream.answer.done():
                if stream.request is not None:
                    stream.batcher.cancel(stream.request)
                stream.wake()

    @override
    async def GetStatus(self, _: Any, __: Any) -> wire.GetStatusReply:
        leaves = self._ending is not None and not self._over
        slots = {"all": self._slots.slots, "free": 0 if leaves else self._slots.available}
        status = {**self._telemetry.status(), "slots": slots}
        return wire.GetStatusReply(json=json.dumps(status))
