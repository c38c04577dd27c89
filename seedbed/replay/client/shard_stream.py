"""A stream to a shard, over gRPC or through shared memory, and the work on its way."""

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

import grpc.aio

from seedbed.replay.codec import MESSAGE_BYTES, chunk_bytes, sequence_bytes, unpack
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc.local.messages import Answer
from seedbed.rpc.stream import Metadata, Stream
from seedbed.rpc.stream_factory import open_message_stream
from seedbed.v1 import replay_pb2 as wire

PREFIX = "/seedbed.v1.Replay/"
# Keys of a batch of priorities, at most.
MAX_UPDATE = 65536
Pieces = Iterable[Any]


class ShardStream:
    """One of the streams to a shard, and the work on its way.

    Args:
        name: Name of the method.
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
        reply: Any,
        serialize: Callable[[Any, int], Pieces],
        spec: SequenceSpec,
        traffic: Counter[str],
    ) -> None:
        self.name, self.reply = name, reply
        self._serialize, self._spec, self._traffic = serialize, spec, traffic
        self._unsent: asyncio.Queue[Any] = asyncio.Queue()
        self.unfinished: deque[Any] = deque()
        self.finished = 0
        self.since = 0.0
        self._stream: Stream[Pieces, Answer] | None = None

    async def open(
        self, address: str, channel: grpc.aio.Channel, metadata: Metadata
    ) -> wire.ShardState:
        """Begin the stream, and return the state with which the shard welcomes it.

        Args:
            address: `host:port` or `unix:PATH` of the shard.
            channel: Connection to it.
            metadata: Metadata of the call: the learner's credential and its Hello.
        """
        method, size = PREFIX + self.name, largest_payload(self.name, self._spec)
        self._stream = open_message_stream(address, channel, method, metadata, size)
        answer = await self._stream.receive()
        message = unpack(self.reply, answer.data)[0]
        answer.release()
        if not message.HasField("welcome"):
            raise ConnectionError(f"{self.name} was not answered with welcome")
        state: wire.ShardState = message.welcome.state
        return state

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
        assert self._stream is not None, "the stream is not open"
        for number in itertools.count():
            pieces = list(self._serialize(await self._unsent.get(), number))
            await self._stream.send(pieces)
            self._traffic["sent"] += sum(memoryview(piece).nbytes for piece in pieces)

    async def receive(self) -> Answer:
        """Return the next answer, for which the work after the answered one had to wait."""
        assert self._stream is not None, "the stream is not open"
        answer = await self._stream.receive()
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
        if self._stream is not None:
            self._stream.end()

    async def raise_if_refused(self) -> None:
        """Raise the status with which the shard refused the stream, if it did."""
        if self._stream is not None:
            await self._stream.raise_if_refused()


def largest_payload(name: str, spec: SequenceSpec) -> int:
    """Return the bytes of the largest payload of a stream's messages."""
    if name == "Insert":
        return max(MESSAGE_BYTES, chunk_bytes(spec))
    if name == "Sample":
        return max(MESSAGE_BYTES, sequence_bytes(spec))
    return MAX_UPDATE * (8 + 4)
