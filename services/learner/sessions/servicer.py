"""Servicer of actor streams."""

import asyncio
import json
import logging
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from seedbed.config import Experiment
from seedbed.rpc.credentials import Denial
from seedbed.rpc.step_codec import Actions, Step
from seedbed.rpc.streams import OpenStreams, StreamRejected
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import counted
from seedbed.services.learner.components import ComponentsFuture
from seedbed.services.learner.sessions.answers import Answers
from seedbed.services.learner.sessions.batchers import Batchers
from seedbed.services.learner.sessions.handshake import (
    Handshake,
    actor_hello,
    check_first_spec,
    goodbye_in,
    validate_hello,
    welcome_to,
)
from seedbed.services.learner.sessions.housekeeping import keep_house
from seedbed.services.learner.sessions.rejections import InvalidStep
from seedbed.services.learner.sessions.session import Session
from seedbed.services.learner.sessions.slots import SlotAllocator, exploration_of
from seedbed.services.learner.sessions.stream_state import ActStream, StreamState
from seedbed.services.learner.unrolls.queue import CompletedUnroll, UnrollQueue
from seedbed.services.learner.unrolls.synchronous_queue import SynchronousUnrollQueue
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.telemetry import Telemetry
from seedbed.v1 import inference_pb2 as wire

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.learner.unrolls.sequences import SequencePlan

log = logging.getLogger(__name__)


class InferenceServicer:
    """Answers `Act` streams through the batcher, and puts complete unrolls into the queue.

    One coroutine a stream, all in one event loop.

    Args:
        experiment: its `environment.id` and `learner` settings are read.
        queue: takes the unrolls.
        telemetry: receives counts and times.
        components: built for the first actor's spec; awaited with notices.

    Attributes:
        batchers: take the requests.
        answers: send their actions.
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
        self.batchers = Batchers(self._settings.inference)
        self._slots = SlotAllocator(self._settings.inference.slots)
        if isinstance(queue, SynchronousUnrollQueue):
            self._slots = SlotAllocator(self._settings.host_batch_size, "learner.batch_size")
        self._log = PeerLog(log)
        self._open = OpenStreams("the learner stops", self._on_rejected, invalid=())
        self._states: dict[int, StreamState] = {}
        self._numbers = 0
        self._incarnation = secrets.randbits(63)
        self._ending: str | None = None  # why the learner ends
        self._over = False  # whether the experiment is over too
        self.answers = Answers()

    # --- streams ---------------------------------------------------------------------------

    async def act(self, stream: ActStream) -> None:
        """Serve one lock-step group, from Hello to the end of its stream."""
        await self._open.serve(stream, lambda: self._act(stream))

    def _on_rejected(self, rejection: StreamRejected) -> None:
        field = getattr(rejection, "field", None)
        self._telemetry.sessions.on_stream_error(field or rejection.code.name.lower())

    def on_denied(self, denial: Denial) -> None:
        """Count a call that was refused for its credential. Event loop only."""
        self._telemetry.sessions.on_stream_error(denial.code.name.lower())

    async def _act(self, stream: ActStream) -> None:
        if self._ending is not None:
            await self._end_stream(stream)
            return
        try:
            handshake = await self._handshake(actor_hello(stream.invocation_metadata()))
            slots = self._slots.allocate(handshake.num_envs)
            self._numbers += 1
            task = asyncio.current_task()
            assert task is not None
            first = self.batchers.all[0]
            state = StreamState(stream, handshake, self._numbers, task, slots, first)
            self._states[state.number] = state
            self._update_connected()
            environments = counted(handshake.num_envs, "environment")
            sizes = f"{environments} as protocol {handshake.protocol_version}"
            self._log.info(
                "joining", "session %d: %s joins with %s", state.number, handshake.actor, sizes
            )
            try:
                await self._serve(state)
            finally:
                self._leave(state)
        except DecodeError:
            raise InvalidStep(
                "message", "an ActorMessage", "bytes that are none", "see proto/seedbed/v1"
            ) from None

    async def _handshake(self, hello: wire.Hello) -> Handshake:
        environment, probed = self._experiment.environment.id, await self._components.probed()
        handshake = validate_hello(hello, environment, probed, self._settings)
        if self._components.spec is None:
            check_first_spec(handshake.spec, self._settings)
        self._components.fix_spec(handshake.spec)
        return handshake

    async def _welcome(self, state: StreamState) -> None:
        welcome = welcome_to(
            state.handshake,
            self._settings,
            session=state.number,
            learner_incarnation=self._incarnation,
            env_frames=self._telemetry.whole_counters().env_frames,
        )
        await state.stream.send(wire.LearnerMessage(welcome=welcome))

    def _new_session(self, state: StreamState, writers: "UnrollSpec | SequencePlan") -> Session:
        stats, bounds = self._telemetry.sessions, self._experiment.environment.bounds
        return Session(state.handshake.spec, state.slots, writers, stats, bounds)

    def _log_goodbye(
        self, state: StreamState, message: Step | wire.ActorMessage, expected: str
    ) -> None:
        name, reason = state.handshake.actor, goodbye_in(message, expected)
        self._log.info("leaving", "session %d: %s leaves: %s", state.number, name, reason)

    async def _serve(self, state: StreamState) -> None:
        stream = state.stream
        network = self._telemetry.network if stream.crosses_network else None
        await self._welcome(state)
        loop = asyncio.get_running_loop()
        receive, send, wake = stream.receive, stream.send, state.wake
        stream.before_receive = self.answers.note
        while True:
            message = await receive()
            state.actor_since = state.learner_since = time.perf_counter()
            if not isinstance(message, Step):
                self._log_goodbye(state, message, "step")
                return
            if state.session is None:
                writers = await self._components.unroll()
                if len(self.batchers.all) > 1:
                    state.batcher = self.batchers.emptiest(self._states.values())
                    self._update_connected()
                state.session = self._new_session(state, writers)
            session = state.session
            unroll = session.receive(message)
            if unroll is not None and not self._queue.try_put(unroll):
                await self._wait_for_room(state, unroll)
            if self._ending is not None:
                await self._end_stream(stream)
                return
            state.request = request = session.request(wake)
            if stream.can_post:
                request.post = partial(state.post, message.sequence)
            state.batcher.submit(request)
            if not request.done:  # as a batch that was computed at once
                state.answer = loop.create_future()
                await state.answer
            action = request.action
            state.request = None
            # The actor must read what is written from here on, and send the next step.
            state.actor_since, state.learner_since = time.perf_counter(), None
            await state.wait_for_notice()
            if action is None:
                await self._end_stream(stream)
                return
            if not stream.can_post:
                await send(Actions(message.sequence, action))
            if network is not None:
                size = len(message.observation) + len(message.reward) + len(message.flags)
                network.on_step(size, len(action))

    async def _wait_for_room(self, state: StreamState, unroll: CompletedUnroll) -> None:
        frames = unroll.steps * state.handshake.spec.action_repeat
        state.batcher.pause()
        try:
            backpressure_s = await self._queue.put(
                unroll, lambda reason: self._telemetry.sessions.on_discarded(frames, reason)
            )
            self._telemetry.sessions.on_backpressure(backpressure_s)
        finally:
            state.batcher.resume()

    def _leave(self, state: StreamState) -> None:
        slots = state.slots
        del self._states[state.number]
        if state.notice is not None:
            state.notice.cancel()
        if state.session is not None:
            state.session.close()
        request = state.request
        self._update_connected()
        if request is not None and not request.done and not state.batcher.cancel(request):
            # A batch that names these slots is being computed: they are free when it is done.
            request.on_done = lambda: self._slots.free(slots)
        else:
            self._slots.free(slots)
        self._log.info("ended", "session %d: ended", state.number)

    def _update_connected(self) -> None:
        states = self._states.values()
        self.batchers.set_connected(states)
        stats = self._telemetry.sessions
        stats.connected = len(states)
        slots = [slot for state in states for slot in state.slots]
        stats.environments = len(slots)
        stats.on_exploration(exploration_of(self._experiment, slots))

    async def _end_stream(self, stream: ActStream) -> None:
        """Tell the actor that the experiment is over, or that only this learner stops."""
        if not self._over:
            raise StreamRejected(
                f"the learner stops: {self._ending}; try again", grpc.StatusCode.UNAVAILABLE
            )
        finished = wire.Finished(reason=self._ending or "")
        await stream.send(wire.LearnerMessage(finished=finished))

    # --- beside the streams ------------------------------------------------------------------

    async def housekeeping(self) -> None:
        """End idle streams and announce late answers, until cancelled."""
        self.answers.begin()
        states, note = self._states.values, self.answers.note
        await keep_house(self._settings, states, self._open, self._why_late, note)

    def _why_late(self) -> str:
        if isinstance(self._queue, SynchronousUnrollQueue) and self._queue.missing:
            return f"the round waits for {counted(self._queue.missing, 'environment')}"
        return self._telemetry.waiting() or "the learner is busy"

    def finish(self, reason: str, over: bool) -> None:
        """End every stream, now and later. Event loop only.

        Args:
            reason: why the learner ends.
            over: whether the experiment is over, so that actors leave. Otherwise actors try to
                reach this learner again, or another one.
        """
        self.answers.note()
        self._ending, self._over = reason, over
        self._queue.close()  # which ends the wait for room
        for state in self._states.values():
            if state.answer is not None and not state.answer.done():
                if state.request is not None:
                    state.batcher.cancel(state.request)
                state.wake()

    async def get_status(self, _: Any, __: Any) -> wire.GetStatusReply:
        """Return the status of this learner, with its free slots."""
        leaves = self._ending is not None and not self._over
        slots = {"all": self._slots.slots, "free": 0 if leaves else self._slots.available}
        status = {**self._telemetry.status(), "slots": slots}
        return wire.GetStatusReply(json=json.dumps(status))
