"""The shard's end of the wire: one coroutine a stream, all in one event loop.

Handlers get and give bytes: `messages.py` says why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from seedbed.replay.codec import sequences_a_message, spec_of, unpack
from seedbed.rpc.versions import OLDEST_REPLAY_PROTOCOL_VERSION, REPLAY_PROTOCOL_VERSION
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.services.replay.shard import Shard, SpecMismatch
from seedbed.v1 import replay_pb2 as wire

log = logging.getLogger(__name__)

SERVICE = "seedbed.v1.Replay"
HELLO_TIMEOUT_S = 10.0
MAX_DRAWS = 65536  # numbers of one request

_Stream = Callable[[Any, Any], Awaitable[None]]


class ReplayServicer:
    """Answers learners out of a shard. Event loop only."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._streams: set[asyncio.Task[Any]] = set()

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server takes."""
        streams = {
            "Insert": (wire.InsertRequest, self._insert, wire.InsertReply),
            "Sample": (wire.SampleRequest, self._sample, wire.SampleReply),
            "Prioritize": (wire.PrioritizeRequest, self._prioritize, wire.PrioritizeReply),
        }
        handlers: dict[str, Any] = {
            name: grpc.stream_stream_rpc_method_handler(self._stream(name, *parts))
            for name, parts in streams.items()
        }
        handlers["GetState"] = grpc.unary_unary_rpc_method_handler(
            self._state,
            request_deserializer=wire.GetStateRequest.FromString,
            response_serializer=wire.ShardState.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def finish(self) -> None:
        """End every stream, now and later: the shard stops."""
        self._shard.serving = False
        for task in self._streams:
            task.cancel()

    async def _state(self, _: Any, __: Any) -> wire.ShardState:
        return await self._shard.call(self._shard.state)

    def _stream(self, name: str, request: Any, serve: _Stream, reply: Any) -> _Stream:
        """A handler that greets, serves, and says what went wrong."""

        async def handle(_: Any, context: Any) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._streams.add(task)
            code, words = grpc.StatusCode.UNAVAILABLE, "the shard stops: try again"
            try:
                if self._shard.serving:
                    learner = await self._greet(context, request, reply)
                    log.info("%s: %s begins", learner, name)
                    self._shard.learners += name == "Insert"
                    try:
                        await serve(context, learner)
                        return
                    finally:
                        log.info("%s: %s ended", learner, name)
                        self._shard.learners -= name == "Insert"
            except asyncio.CancelledError:
                if self._shard.serving:
                    raise  # the learner went away
                task.uncancel()
            except SpecMismatch as refusal:
                code, words = grpc.StatusCode.FAILED_PRECONDITION, str(refusal)
            except SeedbedError as error:
                code, words = grpc.StatusCode.FAILED_PRECONDITION, f"this shard: {error}"
            except (ValueError, DecodeError) as error:
                code, words = grpc.StatusCode.INVALID_ARGUMENT, f"{name}: {error}"
            finally:
                self._streams.discard(task)
            if code is not grpc.StatusCode.UNAVAILABLE:
                self._shard.refused += 1
                log.warning("refused %s: %s", context.peer(), words)
            await context.abort(code, words)

        return handle

    async def _greet(self, context: Any, request: Any, reply: Any) -> str:
        try:
            data = await asyncio.wait_for(context.read(), HELLO_TIMEOUT_S)
        except TimeoutError:
            raise ValueError(f"no hello within {HELLO_TIMEOUT_S:g} s") from None
        if data is grpc.aio.EOF:
            raise ValueError("nothing instead of hello")
        message, _ = unpack(request, data)
        if not message.HasField("hello"):
            raise ValueError("hello must come first")
        hello = message.hello
        version = min(hello.protocol_version, REPLAY_PROTOCOL_VERSION)
        if version < max(hello.oldest_protocol_version, OLDEST_REPLAY_PROTOCOL_VERSION):
            raise SpecMismatch(
                f"this shard speaks replay protocol {OLDEST_REPLAY_PROTOCOL_VERSION} to "
                f"{REPLAY_PROTOCOL_VERSION}, and the learner {hello.oldest_protocol_version} to "
                f"{hello.protocol_version}: run the same release"
            )
        shard = self._shard
        await shard.call(shard.greet, spec_of(hello.spec), hello.priority_exponent)
        state = await shard.call(shard.state)
        welcome = wire.ReplayWelcome(protocol_version=version, state=state)
        await context.write(reply(welcome=welcome).SerializeToString())
        return str(hello.learner)

    async def _insert(self, context: Any, _learner: str) -> None:
        """Store chunks. While one is stored the next is read, and no more."""
        storing: asyncio.Task[None] | None = None
        try:
            while True:
                data = await context.read()
                came = time.perf_counter()
                if storing is not None:
                    await storing
                if data is grpc.aio.EOF:
                    return
                storing = asyncio.create_task(self._store(context, data, came))
                del data
        finally:
            if storing is not None and not storing.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(storing)

    async def _store(self, context: Any, data: bytes, came: float) -> None:
        message, payload = unpack(wire.InsertRequest, data)
        await context.write(await self._shard.call(self._shard.insert, message, payload, came))

    async def _sample(self, context: Any, _learner: str) -> None:
        """Answer requests in order. While one message is written the next is gathered."""
        ready: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        drawing = asyncio.create_task(self._draw(context, ready))
        try:
            while (message := await ready.get()) is not None:
                await context.write(message)
                del message
            await drawing
        finally:
            drawing.cancel()

    async def _draw(self, context: Any, ready: asyncio.Queue[bytes | None]) -> None:
        """Put the answers, and at the end None."""
        shard = self._shard
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                message = unpack(wire.SampleRequest, data)[0]
                uniform = _uniform(message)
                step = sequences_a_message(shard.buffer.spec)
                for first in range(0, len(uniform), step):
                    part = uniform[first : first + step]
                    answer, drawn = await shard.call(shard.sample, message.request, first, part)
                    await ready.put(answer)
                    del answer
                    if not drawn:
                        break
        except asyncio.CancelledError:
            raise  # nobody listens any more
        except BaseException:
            await ready.put(None)
            raise
        await ready.put(None)

    async def _prioritize(self, context: Any, _learner: str) -> None:
        """Set priorities, message by message."""
        while (data := await context.read()) is not grpc.aio.EOF:
            message = unpack(wire.PrioritizeRequest, data)[0]
            await context.write(await self._shard.call(self._shard.prioritize, message))


def _uniform(message: wire.SampleRequest) -> NDArray[np.float64]:
    """The numbers of a request.

    Raises:
        ValueError: there is none, too many, or one outside of [0, 1).
    """
    if len(message.uniform) % 8 or not 0 < len(message.uniform) <= 8 * MAX_DRAWS:
        raise ValueError(f"1 to {MAX_DRAWS} numbers of 8 bytes are expected")
    uniform = np.frombuffer(message.uniform, np.float64)
    if not ((uniform >= 0) & (uniform < 1)).all():
        raise ValueError("numbers from [0, 1) are expected")
    return uniform
