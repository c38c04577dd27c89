"""State of one stream of an actor."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.rpc.step_codec import Actions, Step
from seedbed.rpc.stream import ServerStream
from seedbed.services.learner.sessions.batcher import Batcher, Request
from seedbed.services.learner.sessions.handshake import Handshake
from seedbed.services.learner.sessions.session import Session
from seedbed.v1 import inference_pb2 as wire

ActStream = ServerStream[Actions | wire.LearnerMessage, Step | wire.ActorMessage]


@dataclass(eq=False)
class StreamState:
    """State of one stream, shared by its own coroutine and the housekeeping task.

    Attributes:
        stream: the stream itself.
        handshake: what its Hello has announced.
        number: number of the session.
        task: its coroutine.
        slots: [E] int32, slots of its environments.
        batcher: takes its requests; known once its session is there.
        session: checks and stores its steps; None before the first one.
        request: newest step, while it waits for its actions.
        answer: ends the wait of the coroutine for them.
        learner_since: since when the learner must send; None while the actor must.
        actor_since: since when the actor must send, or when its newest message came.
        noticed: when the newest notice was sent.
        notice: sends a notice.
    """

    stream: ActStream
    handshake: Handshake
    number: int
    task: asyncio.Task[Any]
    slots: NDArray[np.int32]
    batcher: Batcher
    session: Session | None = None
    request: Request | None = None
    answer: asyncio.Future[None] | None = None
    learner_since: float | None = None
    actor_since: float = field(default_factory=time.perf_counter)
    noticed: float = 0.0
    notice: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Let the coroutine go on, which awaits `answer`."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(None)

    def post(self, sequence: int, action: bytes) -> None:
        """Send actions from any thread."""
        self.stream.post(Actions(sequence, action))

    async def wait_for_notice(self) -> None:
        """Wait until no notice is being sent: a stream has one sender at a time."""
        if self.notice is not None:
            await self.notice
