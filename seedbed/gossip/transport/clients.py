"""Clients of the peers: heartbeats, parameters and segments go out, and a fetch brings a peer's."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.gossip.membership import LARGEST, check_status
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.chunks import ChunkAssembler, state_from_wire, to_chunks
from seedbed.gossip.transport.peer_stream import WELCOME_S, PeerStream
from seedbed.numbers import check_number
from seedbed.rpc import channels
from seedbed.rpc.asyncio_client import AsyncioStream
from seedbed.rpc.credentials import Credentials
from seedbed.rpc.reconnect import Attempts
from seedbed.runtime.exit_codes import ConfigError
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)

# A heartbeat may be late several times within a deadline.
HEARTBEATS_PER_DEADLINE = 5
LONGEST_HEARTBEAT_S = 1.0
# A steady pace, because all learners of the ring wait for each other.
RING_RETRY_S = 0.5
RING_CONNECT_S = 5.0
# Longest wait for a status, within that for a welcome.
_STATUS_S = 3.0


@dataclass
class Fetched:
    """Reply of a peer to a learner that starts.

    Attributes:
        status: Status of the peer; None if it does not answer.
        highest_iteration: Highest local iteration of this learner that the peer has received.
        message: Newest broadcast of the peer; None before its first one.
        state: Arrays of a checkpoint; empty if they were not asked for, or do not come.
    """

    status: wire.Member | None = None
    highest_iteration: int = 0
    message: Message | None = None
    state: dict[str, NDArray[Any]] = field(default_factory=dict)


class PeerClient(PeerStream):
    """Push stream to one peer, and the calls of Fetch.

    Event loop only, except for `fetch` and reading the attributes.

    Args:
        rank: Rank of the peer.
        address: Address of the peer.
        hello: Hello of this learner.
        heartbeat: Returns the status of this learner.
        deadline_s: `gossip.deadline_s`; bounds a fetch and the time between two heartbeats.
        layout: Layout of the parameters.
        credentials: Credentials of this process.

    Attributes:
        sent: Messages that the peer has acknowledged, whose bytes are `sent_bytes`.
    """

    def __init__(
        self,
        rank: int,
        address: str,
        hello: wire.GossipHello,
        heartbeat: Callable[[], wire.Member],
        deadline_s: float,
        layout: ParameterLayout,
        credentials: Credentials,
    ) -> None:
        super().__init__(rank, address, hello, credentials)
        self._heartbeat, self._layout = heartbeat, layout
        self._deadline_s = deadline_s
        self._heartbeat_s = min(LONGEST_HEARTBEAT_S, deadline_s / HEARTBEATS_PER_DEADLINE)
        self.sent = 0
        self._in_flight: Message | None = None
        self._next: Message | None = None
        self._writer: asyncio.Task[None] | None = None  # of the newest connection
        self._closing = False
        self._disconnected = asyncio.Event()
        self._wake_writer = asyncio.Event()

    # --- push ------------------------------------------------------------------------------

    def send_latest(self, message: Message) -> None:
        """Send a message once the last one is acknowledged; a newer one replaces it until then."""
        if not self.connected:
            return
        if self._in_flight is not None:
            self._next = message
        else:
            self._in_flight = message
            self._wake_writer.set()

    def on_ack(self) -> None:
        """Count the message in flight as received, and send the next one.

        Raises:
            ConnectionError: No message is in flight.
        """
        if self._in_flight is None:
            self.refused += 1
            raise ConnectionError("it acknowledged parameters that were not sent")
        self.sent += 1
        self.sent_bytes += self._in_flight.values.nbytes
        self._in_flight, self._next = self._next, None
        if self._in_flight is not None:
            self._wake_writer.set()

    @override
    def _on_end(self) -> None:
        self._in_flight = self._next = None
        self._wake_writer.clear()

    @override
    async def _serve(self, channel: grpc.aio.Channel, stub: Any) -> None:
        call = stub.Push(metadata=self._metadata())
        stream = AsyncioStream[wire.PushRequest, wire.PushReply](call)
        await stream.receive(WELCOME_S)
        self.connected, self.rejection = True, ""
        self._disconnected.clear()
        writer = self._writer = asyncio.create_task(self._write(stream))
        try:
            while True:
                reply = await stream.receive()
                if reply.WhichOneof("message") == "received":
                    self.on_ack()
        finally:
            writer.cancel()
            self._disconnected.set()

    async def close_gracefully(self) -> None:
        """Send a last heartbeat, and wait until the peer has read it and ends the stream."""
        if self._writer is not None and not self._writer.done():
            self._closing = True
            self._wake_writer.set()
            await self._disconnected.wait()

    async def _write(self, stream: AsyncioStream[wire.PushRequest, wire.PushReply]) -> None:
        """Send heartbeats when they are due, and messages as they come."""
        while True:
            await stream.send(wire.PushRequest(heartbeat=self._heartbeat()))
            if self._closing:
                await stream.half_close()
                return
            due = time.monotonic() + self._heartbeat_s
            while (left := due - time.monotonic()) > 0 and not self._closing:
                try:
                    async with asyncio.timeout(left):
                        await self._wake_writer.wait()
                except TimeoutError:
                    break
                self._wake_writer.clear()
                if (message := self._in_flight) is not None and not self._closing:
                    for chunk in to_chunks(message.iteration, message.values):
                        await stream.send(wire.PushRequest(chunk=chunk))

    # --- fetch -----------------------------------------------------------------------------

    def fetch(self, state_bytes: int = 0) -> Fetched:
        """Fetch the peer's status and newest parameters. Any thread but the event loop's.

        What the peer has sent before it became unreachable counts.

        Args:
            state_bytes: Largest size of the arrays of a checkpoint, which are fetched instead of
                the parameters; 0 fetches the parameters.

        Raises:
            SeedbedError: CONFIG; the peer rejects this learner.
            ValueError: The parameters or the state do not fit this learner's.
        """
        fetched, arrays = Fetched(), list[wire.FetchReply.Array]()
        assembler, received = ChunkAssembler(self._layout), 0
        request = wire.FetchRequest(whole_state=state_bytes > 0)
        with channels.channel(self.address, self._credentials) as channel:
            try:
                replies = wire_grpc.GossipStub(channel).Fetch(
                    request, metadata=self._metadata(), timeout=self._deadline_s
                )
                for reply in replies:
                    if reply.HasField("member"):
                        check_status(reply.member)
                        check_number("highest_iteration", reply.highest_iteration, high=LARGEST)
                        fetched = Fetched(reply.member, reply.highest_iteration)
                    values = assembler.add(reply.chunk) if reply.HasField("chunk") else None
                    if values is not None:
                        fetched.message = Message(self.rank, reply.chunk.iteration, values)
                    received += sum(len(part.data) for part in reply.arrays)
                    if received > state_bytes:
                        raise ValueError(f"a state of more than {state_bytes} bytes")
                    arrays += reply.arrays
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    raise ConfigError(self._refusal(error)) from error
        fetched.state = state_from_wire(arrays)
        return fetched

    async def request_status(self) -> wire.FetchReply | None:
        """Request the peer's status and incarnation; None where it gives no answer that counts."""
        timeout_s = min(self._deadline_s, _STATUS_S)
        try:
            async with channels.aio_channel(self.address, self._credentials) as channel:
                call = wire_grpc.GossipStub(channel).Fetch(
                    wire.FetchRequest(), metadata=self._metadata(), timeout=timeout_s
                )
                reply = await call.read()
            if not isinstance(reply, wire.FetchReply):
                return None
            check_status(reply.member)
        except grpc.aio.AioRpcError:
            return None
        except ValueError as error:
            self.refused += 1
            log.info("learner %d at %s: its status is refused: %s", self.rank, self.address, error)
            return None
        return reply


class RingClient(PeerStream):
    """Reduce stream to the next learner, whose segments are written in order.

    A segment that a failed connection loses is not sent again.
    """

    def __init__(
        self, rank: int, address: str, hello: wire.GossipHello, credentials: Credentials
    ) -> None:
        super().__init__(rank, address, hello, credentials)
        self._segments: asyncio.Queue[wire.ReduceRequest.Segment] = asyncio.Queue()

    def send(self, segment: wire.ReduceRequest.Segment) -> None:
        """Send a segment after those before it."""
        self._segments.put_nowait(segment)

    @override
    def _attempts(self) -> Attempts:
        return Attempts(RING_RETRY_S, RING_RETRY_S, jitter=False)

    @override
    async def _serve(self, channel: grpc.aio.Channel, stub: Any) -> None:
        await asyncio.wait_for(channel.channel_ready(), RING_CONNECT_S)
        call = stub.Reduce(metadata=self._metadata())
        stream = AsyncioStream[wire.ReduceRequest, Any](call)
        self.connected = True
        writer = asyncio.create_task(self._write(stream))
        try:
            await call
        finally:
            writer.cancel()

    async def _write(self, stream: AsyncioStream[wire.ReduceRequest, Any]) -> None:
        while True:
            segment = await self._segments.get()
            await stream.send(wire.ReduceRequest(segment=segment))
            self.sent_bytes += len(segment.data)
