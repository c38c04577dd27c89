"""gRPC server of a replay shard: one coroutine a stream, all in one event loop.

Handlers receive and send bytes, because `seedbed.replay.codec` reads and writes messages by hand.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.numbers import DEFAULT_BOUNDS, Bounds, InvalidNumbers, check_number
from seedbed.replay.codec import sequence_bytes, sequences_a_message, spec_of, unpack
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc.asyncio_server import stream_handler
from seedbed.rpc.credentials import PLAIN, Credentials, Denial
from seedbed.rpc.hello import hello_in
from seedbed.rpc.local.messages import message_methods
from seedbed.rpc.local.server import LocalMethod
from seedbed.rpc.server import ServerThread
from seedbed.rpc.stream import PackingServerStream
from seedbed.rpc.streams import OpenStreams, StreamRejected, beside
from seedbed.rpc.versions import OLDEST_REPLAY_PROTOCOL_VERSION, REPLAY_PROTOCOL_VERSION
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import printable
from seedbed.runtime.threads import Threads
from seedbed.services.replay.shard import Shard, SpecMismatch
from seedbed.v1 import replay_pb2 as wire

log = logging.getLogger(__name__)

SERVICE = "seedbed.v1.Replay"
# Most numbers, and so sequences, of one request.
MAX_SAMPLES = 65536
# To find a key's place and set its priority takes as long as to copy so many bytes.
_KEY_BYTES = 256


class ReplayServer(ServerThread):
    """Server of one shard. `close` stores the inserts under way; see `ServerThread`.

    Args:
        shard: Stores and samples the sequences.
        listen: `host:port` or `unix:PATH`.
        threads: Threads of the process, which fail with this server.
        credentials: Credentials of this process.
    """

    def __init__(
        self, shard: Shard, listen: str, threads: Threads, credentials: Credentials = PLAIN
    ) -> None:
        super().__init__(listen, threads, credentials)
        self._shard = shard
        self._log = PeerLog(log)
        self._streams = OpenStreams("the shard stops: try again", self._on_rejected)

        self._methods = {
            name: self._method(name, *parts)
            for name, parts in {
                "Insert": (self._insert, wire.InsertReply),
                "Sample": (self._sample, wire.SampleReply),
                "Prioritize": (self._prioritize, wire.PrioritizeReply),
            }.items()
        }

    @override
    def _add(self, server: grpc.aio.Server) -> None:
        handlers: dict[str, Any] = {
            name: stream_handler(serve) for name, serve in self._methods.items()
        }
        handlers["GetState"] = grpc.unary_unary_rpc_method_handler(
            self._state,
            request_deserializer=wire.GetStateRequest.FromString,
            response_serializer=wire.ShardState.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    @override
    def _local_methods(self) -> Mapping[str, LocalMethod]:
        return message_methods(SERVICE, self._methods)

    @override
    async def _finish(self) -> None:
        self._shard.serving = False
        self._streams.close()

    def _on_rejected(self, _: StreamRejected) -> None:
        self._shard.refused += 1

    @override
    def _on_denied(self, denial: Denial) -> None:
        self._shard.refused += 1

    async def _state(self, _: Any, __: Any) -> wire.ShardState:
        return await self._shard.call(self._shard.state)

    def _method(
        self, name: str, serve: Callable[[Any], Awaitable[None]], reply: Any
    ) -> Callable[[Any], Awaitable[None]]:
        """Return the handler of a stream: handshake, then `serve`."""

        async def handle(stream: PackingServerStream) -> None:
            try:
                hello = hello_in(stream.invocation_metadata(), wire.ReplayHello)
                spec, bounds = spec_of(hello.spec), _bounds(hello)
                learner = printable(hello.learner)
                with self._shard.stream_of(spec):
                    welcome = await self._accept(hello, spec, bounds)
                    await _send(stream, reply(welcome=welcome))
                    self._log.info("beginning", "%s: %s begins", learner, name)
                    self._shard.learners += name == "Insert"
                    try:
                        await serve(stream)
                    finally:
                        self._log.info("ended", "%s: %s ended", learner, name)
                        self._shard.learners -= name == "Insert"
            except SeedbedError as error:
                code = grpc.StatusCode.FAILED_PRECONDITION
                raise StreamRejected(f"this shard: {error}", code) from error
            except MemoryError as error:
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
                raise StreamRejected(f"this shard: no memory: {error}", code) from error

        async def method(stream: PackingServerStream) -> None:
            await self._streams.serve(stream, lambda: handle(stream), name)

        return method

    async def _accept(self, hello: Any, spec: SequenceSpec, bounds: Bounds) -> Any:
        """Accept the learner of a Hello; return the Welcome."""
        version = min(hello.protocol_version, REPLAY_PROTOCOL_VERSION)
        if version < max(hello.oldest_protocol_version, OLDEST_REPLAY_PROTOCOL_VERSION):
            raise SpecMismatch(
                f"this shard speaks replay protocol {OLDEST_REPLAY_PROTOCOL_VERSION} to "
                f"{REPLAY_PROTOCOL_VERSION}, and the learner {hello.oldest_protocol_version} to "
                f"{hello.protocol_version}: run the same release"
            )
        shard = self._shard
        await shard.call(shard.accept, spec, hello.priority_exponent, bounds)
        state = await shard.call(shard.state)
        return wire.ReplayWelcome(protocol_version=version, state=state)

    async def _insert(self, stream: PackingServerStream) -> None:
        """Store chunks. While one chunk is stored the next one is received, and no more."""
        storing: asyncio.Task[None] | None = None
        try:
            for due in itertools.count():
                data, arrived = await beside(storing, _next_chunk(stream))
                storing = asyncio.create_task(self._store(stream, data, arrived, due))
                del data
        finally:
            if storing is not None and not storing.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(storing)

    async def _store(
        self,
        stream: PackingServerStream,
        data: bytes | memoryview,
        arrived: float,
        due: int,
    ) -> None:
        message, payload = unpack(wire.InsertRequest, data)
        _check_sequence(message, due)
        shard = self._shard
        stored = shard.call_on(len(payload), shard.insert, message, payload, arrived)
        await _send(stream, await stored)

    async def _sample(self, stream: PackingServerStream) -> None:
        """Answer requests in order. While one message is written the next one is gathered."""
        ready: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        drawing = asyncio.create_task(self._draw(stream, ready))
        try:
            while (message := await ready.get()) is not None:
                await self._streams.write(stream, message)
                del message
            await drawing
        finally:
            drawing.cancel()

    async def _draw(self, stream: PackingServerStream, ready: asyncio.Queue[bytes | None]) -> None:
        """Put the answers into `ready`, and None at the end."""
        shard = self._shard
        try:
            while True:
                message = unpack(wire.SampleRequest, await stream.receive())[0]
                uniform = _uniform(message)
                step = sequences_a_message(shard.buffer.spec)
                one = sequence_bytes(shard.buffer.spec)
                for first in range(0, len(uniform), step):
                    part = uniform[first : first + step]
                    answer, drawn = await shard.call_on(
                        len(part) * one, shard.sample, message.request, first, part, stream.pack
                    )
                    await ready.put(answer)
                    del answer
                    if not drawn:
                        break
        except asyncio.CancelledError:
            raise  # `_sample` has ended, and does not read `ready` any more
        except BaseException:
            await ready.put(None)
            raise

    async def _prioritize(self, stream: PackingServerStream) -> None:
        """Set priorities, message by message."""
        for due in itertools.count():
            message = unpack(wire.PrioritizeRequest, await stream.receive())[0]
            _check_sequence(message, due)
            size = len(message.key) // 8 * _KEY_BYTES
            await _send(stream, await self._shard.call_on(size, self._shard.prioritize, message))


async def _next_chunk(stream: PackingServerStream) -> tuple[bytes | memoryview, float]:
    """Return the next chunk, and when it has arrived."""
    return await stream.receive(), time.perf_counter()


async def _send(stream: PackingServerStream, message: Message) -> None:
    """Send a message without a payload."""
    await stream.send(stream.pack([message.SerializeToString()]))


def _bounds(hello: wire.ReplayHello) -> Bounds:
    """Return the bounds within which a learner sends rewards and frames."""
    reward, observation = hello.max_abs_reward, hello.max_abs_observation
    check_number("max_abs_reward", reward)
    check_number("max_abs_observation", observation)
    return Bounds(reward or DEFAULT_BOUNDS.reward, observation or DEFAULT_BOUNDS.observation)


def _check_sequence(message: Any, due: int) -> None:
    if message.sequence != due:
        raise InvalidNumbers("sequence", f"{due}", f"{message.sequence}")


def _uniform(message: wire.SampleRequest) -> NDArray[np.float64]:
    """Return the numbers of a request.

    Raises:
        ValueError: There is none, there are too many, or one is outside of [0, 1).
    """
    if len(message.uniform) % 8 or not 0 < len(message.uniform) <= 8 * MAX_SAMPLES:
        raise ValueError(f"1 to {MAX_SAMPLES} numbers of 8 bytes are expected")
    uniform = np.frombuffer(message.uniform, np.float64)
    right = (uniform >= 0) & (uniform < 1)
    if not right.all():
        index = int(np.flatnonzero(~right)[0])
        raise InvalidNumbers("uniform", "[0, 1)", f"{uniform[index]} at [{index}]")
    return uniform
