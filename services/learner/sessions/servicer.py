"""The learner's end of the wire: one coroutine a stream, all in one event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from seedbed.config import Experiment
from seedbed.rpc.step_codec import Actions, Step, kind_of
from seedbed.services.learner.components import ComponentsFuture
from seedbed.services.learner.sessions.batcher import Batcher, Request
from seedbed.services.learner.sessions.handshake import read_hello
from seedbed.services.learner.sessions.session import (
    Greeting,
    Session,
    SlotAllocator,
    StreamRefused,
)
from seedbed.services.learner.unrolls.queue import Finished, UnrollQueue
from seedbed.telemetry import Telemetry
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
ERROR_KEY = "seedbed-error-bin"


@dataclass(eq=False)
class Stream:
    """What the housekeeping task must know of a stream."""

    context: Any
    greeting: Greeting
    number: int
    task: asyncio.Task[Any]
    session: Session | None = None
    request: Request | None = None
    answer: asyncio.Future[None] | None = None
    owes_since: float | None = None  # since when the learner owes an answer
    heard: float = 0.0  # when the actor last said something
    noticed: float = 0.0
    notice: asyncio.Task[None] | None = None
    cause: tuple[grpc.StatusCode, str] | None = None  # why housekeeping ended it


class InferenceServicer(wire_grpc.InferenceServicer):
    """Answers `Act` streams through the batcher and hands complete unrolls to the queue.

    Args:
        model: gives the model, built for the first actor's specs; awaited with notices.
        reason: what a late answer is waiting for, in words.
        slots: how many environments may be connected.
    """

    def __init__(
        self,
        experiment: Experiment,
        batcher: Batcher,
        queue: UnrollQueue,
        telemetry: Telemetry,
        model: ComponentsFuture,
        reason: Callable[[], str],
        slots: SlotAllocator,
    ) -> None:
        self._experiment = experiment
        self._settings = experiment.learner
        self._batcher = batcher
        self._queue = queue
        self._telemetry = telemetry
        self._model = model
        self._reason = reason
        self._slots = slots
        self._streams: dict[int, Stream] = {}
        self._numbers = 0
        self._incarnation = secrets.randbits(63)
        self._ending: str | None = None  # why the learner ends
        self._over = False  # the experiment is over too
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- streams ---------------------------------------------------------------------------

    async def Act(self, _: Any, context: Any) -> None:
        """One lock-step group, from Hello to the end of its stream."""
        try:
            await self._act(context)
        except StreamRefused as refusal:
            await self._refuse(context, refusal)
        except DecodeError:
            await self._refuse(
                context,
                StreamRefused(
                    "message", "an ActorMessage", "bytes that are none", "see proto/seedbed/v1"
                ),
            )

    async def _refuse(self, context: Any, refusal: StreamRefused) -> None:
        self._telemetry.on_stream_error(refusal.field)
        log.warning("refused %s: %s", context.peer(), refusal)
        code = grpc.StatusCode.INVALID_ARGUMENT
        if refusal.field in ("protocol_version", "environment"):
            code = grpc.StatusCode.FAILED_PRECONDITION
        elif refusal.field == "slots":
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
        detail = wire.StreamError(
            field=refusal.field,
            expected=refusal.expected,
            received=refusal.received,
            advice=refusal.advice,
        )
        await context.abort(code, str(refusal), ((ERROR_KEY, detail.SerializeToString()),))

    async def _act(self, context: Any) -> None:
        if self._ending is not None:
            await self._say_farewell(context)
            return
        greeting = await self._greet(context)
        slots = self._slots.lease(greeting.environments)
        self._numbers += 1
        task = asyncio.current_task()
        assert task is not None
        stream = Stream(context, greeting, self._numbers, task, heard=time.perf_counter())
        self._streams[stream.number] = stream
        self._count()
        log.info("session %d: %s joins with %d environments as protocol %d", stream.number,
                 greeting.actor, greeting.environments, greeting.protocol_version)  # fmt: skip
        try:
            await self._serve(stream, slots)
        except asyncio.CancelledError:
            if stream.cause is None:
                raise  # the actor went away
        finally:
            self._leave(stream, slots)
        if stream.cause is not None:
            # After the slots are free: to a peer that does not read this waits, until it is gone.
            self._telemetry.on_stream_error(stream.cause[0].name.lower())
            await context.abort(*stream.cause)

    async def _greet(self, context: Any) -> Greeting:
        try:
            message = await asyncio.wait_for(context.read(), HELLO_TIMEOUT_S)
        except TimeoutError:
            raise StreamRefused(
                "hello", f"Hello within {HELLO_TIMEOUT_S:g} s", "nothing", "say Hello first"
            ) from None
        kind = None if message is grpc.aio.EOF else kind_of(message)
        if kind != "hello":
            raise StreamRefused("message", "hello first", kind or "nothing", "say Hello first")
        greeting = read_hello(
            message.hello,
            self._experiment.environment.id,
            self._model.spec,
            self._settings.inference.max_batch_envs,
        )
        self._model.fix_spec(greeting.spec)
        return greeting

    async def _serve(self, stream: Stream, slots: Any) -> None:
        context, greeting = stream.context, stream.greeting
        await context.write(
            wire.LearnerMessage(
                welcome=wire.Welcome(
                    protocol_version=greeting.protocol_version,
                    incarnation=greeting.incarnation,
                    session=stream.number,
                    idle_timeout_seconds=self._settings.idle_timeout_s,
                    notice_interval_seconds=self._settings.notice_interval_s,
                    learner_incarnation=self._incarnation,
                )
            )
        )
        loop = asyncio.get_running_loop()
        read, write = context.read, context.write
        while True:
            message = await read()
            if message is grpc.aio.EOF:
                return
            stream.heard = stream.owes_since = time.perf_counter()
            if not isinstance(message, Step):
                kind = kind_of(message)
                if kind != "goodbye":
                    raise StreamRefused("message", "step or goodbye", kind or "nothing", "see Act")
                log.info("session %d: %s leaves: %s", stream.number, greeting.actor,
                         message.goodbye.reason)  # fmt: skip
                return
            if stream.session is None:
                unroll = await self._model.ready()
                stream.session = Session(stream.number, greeting, slots, unroll, self._telemetry)
            session = stream.session
            block = session.receive(message)
            if block is not None and not self._queue.try_put(block):
                await self._wait_for_room(session, block)
            if self._ending is not None:
                await self._say_farewell(context)
                return
            stream.answer = loop.create_future()
            stream.request = Request(session, session.environments)
            self._batcher.submit(stream.request)
            await stream.answer
            action = stream.request.action
            stream.request = None
            # From here on it is the actor who must do something: take what is written.
            stream.heard, stream.owes_since = time.perf_counter(), None
            if stream.notice is not None:
                await stream.notice  # one writer at a time
            if action is None:
                await self._say_farewell(context)
                return
            await write(Actions(message.sequence, action))

    async def _wait_for_room(self, session: Session, block: Finished) -> None:
        frames = block.steps * session.greeting.spec.action_repeat
        self._batcher.held(+1)
        try:
            held_up_s = await self._queue.put(
                block, lambda reason: self._telemetry.on_discarded(frames, reason)
            )
            self._telemetry.on_held_up(held_up_s)
        finally:
            self._batcher.held(-1)

    def _leave(self, stream: Stream, slots: Any) -> None:
        del self._streams[stream.number]
        if stream.notice is not None:
            stream.notice.cancel()
        if stream.session is not None:
            stream.session.close()
        request = stream.request
        self._count()
        if request is not None and not request.done and not self._batcher.cancel(request):
            # A batch that names these slots is being computed: they are free when it is done.
            request.on_done = lambda: self._slots.release(slots)
        else:
            self._slots.release(slots)
        log.info("session %d: ended", stream.number)

    def _count(self) -> None:
        environments = sum(s.greeting.environments for s in self._streams.values())
        self._batcher.connected(len(self._streams), environments)
        self._telemetry.set_sessions(len(self._streams), environments)

    async def _say_farewell(self, context: Any) -> None:
        """The experiment is over; or only this learner is, and another one will come."""
        if not self._over:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, f"the learner stops: {self._ending}; try again"
            )
        finished = wire.Finished(reason=self._ending or "")
        await context.write(wire.LearnerMessage(finished=finished))

    # --- from the inference thread ---------------------------------------------------------

    def deliver(self, batch: list[Request]) -> None:
        """Send a batch's answers: one wake-up of the event loop. Called by any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, batch)

    def _deliver(self, batch: list[Request]) -> None:
        for request in batch:
            request.done = True
            if request.on_done is not None:  # its session has gone
                request.on_done()
                continue
            stream = self._streams.get(request.session.number)
            if stream is not None and stream.answer is not None and not stream.answer.done():
                stream.answer.set_result(None)

    # --- housekeeping ----------------------------------------------------------------------

    async def housekeeping(self) -> None:
        """Reap idle streams and announce late answers, until cancelled."""
        self._loop = asyncio.get_running_loop()
        interval = self._settings.notice_interval_s
        period = min(interval, self._settings.idle_timeout_s) / 4
        while True:
            await asyncio.sleep(period)
            now = time.perf_counter()
            for stream in list(self._streams.values()):
                if stream.owes_since is None:
                    silent = now - stream.heard
                    if silent > self._settings.idle_timeout_s:
                        self._end(
                            stream,
                            grpc.StatusCode.DEADLINE_EXCEEDED,
                            f"nothing from the actor for {silent:.1f} s; "
                            f"learner.idle_timeout_s is {self._settings.idle_timeout_s:g}",
                        )
                    continue
                late = now - stream.owes_since
                if (
                    stream.greeting.protocol_version >= 2
                    and late >= interval
                    and now - stream.noticed >= interval
                    and (stream.notice is None or stream.notice.done())
                ):
                    stream.noticed = now
                    stream.notice = asyncio.create_task(self._notify(stream, late))

    async def _notify(self, stream: Stream, late: float) -> None:
        sequence = stream.session.sequence - 1 if stream.session else 0
        notice = wire.Notice(sequence=max(sequence, 0), reason=self._reason(), waited_seconds=late)
        # The stream may have ended meanwhile; its own coroutine says so.
        with suppress(grpc.aio.UsageError, grpc.aio.InternalError, asyncio.InvalidStateError):
            await stream.context.write(wire.LearnerMessage(notice=notice))

    def _end(self, stream: Stream, code: grpc.StatusCode, cause: str) -> None:
        if stream.cause is None:
            log.warning("session %d: %s", stream.number, cause)
            stream.cause = (code, cause)
            stream.task.cancel()

    def finish(self, reason: str, over: bool) -> None:
        """End every stream, now and later. Event loop only.

        Actors hear that the experiment is `over`, and leave; or that this learner stops, and try
        to reach the next one.
        """
        self._ending, self._over = reason, over
        self._queue.close()  # whoever waits for room is to hear it too
        for stream in self._streams.values():
            if stream.answer is not None and not stream.answer.done():
                if stream.request is not None:
                    self._batcher.cancel(stream.request)
                stream.answer.set_result(None)

    async def GetStatus(self, _: Any, __: Any) -> wire.GetStatusReply:
        """What the learner is doing, as JSON: status.json, and its slots at this very moment."""
        leaves = self._ending is not None and not self._over
        slots = {"all": self._slots.slots, "free": 0 if leaves else self._slots.free}
        return wire.GetStatusReply(json=json.dumps({**self._telemetry.status(), "slots": slots}))
