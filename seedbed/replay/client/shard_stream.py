"""A stream to a shard, over gRPC or through shared memory, and the work on its way."""

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

import grpc.aio

from seedbed.replay.codec import MESSAGE_BYTES, chunk_bytes, sequence_bytes, unpack
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc.local.addresses import socket_of
from seedbed.rpc.local.messages import Answer, MessageCall
from seedbed.rpc.reconnect import FATAL
from seedbed.rpc.streams import read, write
from seedbed.v1 import replay_pb2 as wire

log = logging.getLogger(__name__)

PREFIX = "/seedbed.v1.Replay/"
# Keys of a batch of priorities, at most.
MAX_UPDATE = 65536
Pieces = Iterable[Any]


def _nothing() -> None:
    pass


class _GrpcCall:
    """A stream of gRPC with the methods of a `MessageCall`."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def write(self, pieces: Pieces) -> int:
        """Send a request of some pieces, and return its bytes."""
        data = b"".join(pieces)
        await write(self._call, data)
        return len(data)

    async def read(self) -> Any:
        """Return the next `Answer`, or EOF; its memory is its own."""
        data = await self._call.read()
        return data if data is grpc.aio.EOF else Answer(data, _nothing)

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()

    async def raise_if_fatal(self) -> None:
        """Raise the status with which the shard refused the stream, if it did."""
        if self._call.done() and await self._call.code() in FATAL:
            await self._call.read()


class ShardStream:
    """One of the streams to a shard, and the work on its way.

    Args:
        name: Name of the method.
        request: Class of the requests.
        reply: Class of the replies.
        serialize: From work and its number, 0, 1, 2, ..., to the pieces of a message.
        spec: Sizes of a sequence.
        traffic: Counts the bytes `sent` and `received`.

    Attributes:
        unfinished: Work that waits to be sent, or for its last answer; the oldest first.
        finished: How much work has its last answer.
        since: Since when the oldest work has waited for an answer.
    """

    def __init__(
        self,
        name: str,
        request: Any,
        reply: Any,
        serialize: Callable[[Any, int], Pieces],
        spec: SequenceSpec,
        traffic: Counter[str],
    ) -> None:
        self.name, self.request, self.reply = name, request, reply
        self._serialize, self._spec, self._traffic = serialize, spec, traffic
        self._unsent: asyncio.Queue[Any] = asyncio.Queue()
        self.unfinished: deque[Any] = deque()
        self.finished = 0
        self.since = 0.0
        self._call: MessageCall | _GrpcCall | None = None

    async def open(
        self, address: str, channel: grpc.aio.Channel, hello: wire.ReplayHello, metadata: Any
    ) -> wire.ShardState:
        """Begin the stream, and return the state with which the shard welcomes it.

        Args:
            address: `host:port` or `unix:PATH` of the shard.
            channel: Connection to it.
            hello: First message.
            metadata: Metadata of the call, with the learner's token.
        """
        self._call = call = self._local(address, metadata) or _GrpcCall(
            channel.stream_stream(PREFIX + self.name)(metadata=metadata)
        )
        await call.write([self.request(hello=hello).SerializeToString()])
        answer = await read(call)
        message = unpack(self.reply, answer.data)[0]
        answer.release()
        if not message.HasField("welcome"):
            raise ConnectionError(f"{self.name} was not answered with welcome")
        state: wire.ShardState = message.welcome.state
        return state

    def _local(self, address: str, metadata: Any) -> MessageCall | None:
        """Open the stream through shared memory to a shard of this machine, if that is possible."""
        path = socket_of(address)
        if path is None:
            return None
        size = largest_payload(self.name, self._spec)
        try:
            return MessageCall(path, PREFIX + self.name, metadata, size)
        except OSError as error:
            log.debug("%s: no shared memory with %s: %s", self.name, address, error)
            return None

    def put(self, work: Any) -> None:
        """Queue work."""
        if not self.unfinished:
            self.since = time.monotonic()
        self.unfinished.append(work)
        self._unsent.put_nowait(work)

    def drop_beyond(self, limit: int) -> None:
        """Drop the oldest work that is not sent yet, where more of it waits than the limit."""
        if self._unsent.qsize() > limit:
            del self.unfinished[-self._unsent.qsize()]
            self._unsent.get_nowait()

    async def send(self) -> None:
        """Send what is queued, for as long as the connection lasts."""
        assert self._call is not None, "the stream is not open"
        for number in itertools.count():
            pieces = self._serialize(await self._unsent.get(), number)
            self._traffic["sent"] += await self._call.write(pieces)

    async def receive(self) -> Answer:
        """Return the next answer, for which the work after the answered one had to wait."""
        answer: Answer = await read(self._call)
        self._traffic["received"] += len(answer.data)
        self.since = time.monotonic()
        return answer

    async def receive_message(self) -> Any:
        """Return the message of the next answer, which has no payload."""
        answer = await self.receive()
        message = unpack(self.reply, answer.data)[0]
        answer.release()
        return message

    def finish(self) -> Any:
        """Return the oldest work, which has its answer."""
        self.finished += 1
        return self.unfinished.popleft()

    def close(self) -> None:
        """End the stream."""
        if self._call is not None:
            self._call.cancel()

    async def raise_if_fatal(self) -> None:
        """Raise the status with which the shard refused the stream, if it did."""
        if self._call is not None:
            await self._call.raise_if_fatal()


def largest_payload(name: str, spec: SequenceSpec) -> int:
    """Return the bytes of the largest payload of a stream's messages."""
    if name == "Insert":
        return max(MESSAGE_BYTES, chunk_bytes(spec))
    if name == "Sample":
        return max(MESSAGE_BYTES, sequence_bytes(spec))
    return MAX_UPDATE * (8 + 4)
