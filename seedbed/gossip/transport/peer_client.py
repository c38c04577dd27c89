"""Client of one peer: pushes heartbeats and parameters, and fetches the peer's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import grpc.aio
from numpy.typing import NDArray

from seedbed.gossip.membership import PeerStatus
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.chunks import ChunkAssembler, state_from_wire, to_chunks
from seedbed.rpc import channels
from seedbed.rpc.reconnect import Attempts, describe
from seedbed.rpc.streams import read, write
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)

WELCOME_S = 10.0
# A heartbeat may be late several times within a deadline.
HEARTBEATS_PER_DEADLINE = 5
LONGEST_HEARTBEAT_S = 1.0
# Status codes of a peer that does not accept this learner.
_REJECTIONS = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)


class Fetched(NamedTuple):
    """Reply of a peer to a learner that starts.

    Attributes:
        status: Status of the peer; None if it does not answer.
        highest_iteration: Highest local iteration of this learner that the peer has received.
        message: Newest broadcast of the peer; None before its first one.
    """

    status: PeerStatus | None = None
    highest_iteration: int = 0
    message: Message | None = None


class PeerClient:
    """Push stream to one peer, opened again whenever it ends, and the calls of Fetch.

    Event loop only, except for `fetch`, `fetch_state` and reading the attributes.

    Args:
        rank: Rank of the peer.
        address: Address of the peer.
        hello: Hello of this learner.
        heartbeat: Returns the status of this learner.
        deadline_s: `gossip.deadline_s`; bounds a fetch and the time between two heartbeats.
        layout: Layout of the parameters.
        tls: Certificates, if the peer demands them.

    Attributes:
        connected: Whether the peer has welcomed this learner.
        sent: Messages that the peer has acknowledged.
        sent_bytes: Bytes of the parameters in these messages.
        rejection: Reason why the peer does not accept this learner; or empty.
    """

    def __init__(
        self,
        rank: int,
        address: str,
        hello: wire.GossipHello,
        heartbeat: Callable[[], PeerStatus],
        deadline_s: float,
        layout: ParameterLayout,
        tls: Tls | None,
    ) -> None:
        self.rank, self.address = rank, address
        self._hello, self._heartbeat, self._layout, self._tls = hello, heartbeat, layout, tls
        self._deadline_s = deadline_s
        self._heartbeat_s = min(LONGEST_HEARTBEAT_S, deadline_s / HEARTBEATS_PER_DEADLINE)
        self.connected = False
        self.sent = self.sent_bytes = 0
        self.rejection = ""
        self._in_flight: Message | None = None
        self._next: Message | None = None
        self._writer: asyncio.Task[None] | None = None  # of the newest connection
        self._closing = False
        self._disconnected = asyncio.Event()
        self._wake_writer = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Return whether a message is in flight."""
        return self._in_flight is not None

    # --- push ------------------------------------------------------------------------------

    def send_latest(self, message: Message) -> None:
        """Send a message once the last one is acknowledged; a newer one replaces it until then."""
        if not self.connected:
            return
        if self.busy:
            self._next = message
        else:
            self._in_flight = message
            self._wake_writer.set()

    def on_ack(self) -> None:
        """Count the message in flight as received, and send the next one."""
        assert self._in_flight is not None
        self.sent += 1
        self.sent_bytes += self._in_flight.values.nbytes
        self._in_flight, following, self._next = None, self._next, None
        if following is not None:
            self.send_latest(following)

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        last_cause = ""
        async for _ in Attempts():
            try:
                await self._connect()
            except grpc.aio.AioRpcError as error:
                cause = describe(error)
                self.rejection = str(error.details()) if error.code() in _REJECTIONS else ""
            except (TimeoutError, ConnectionError) as error:
                cause = str(error) or "no answer"
            finally:
                self.connected, self._in_flight, self._next = False, None, None
                self._wake_writer.clear()
            if cause != last_cause:
                last_cause = cause
                log.info("learner %d at %s: %s", self.rank, self.address, cause)

    async def _connect(self) -> None:
        channel = channels.aio_channel(self.address, self._tls)
        try:
            call: Any = wire_grpc.GossipStub(channel).Push()
            await write(call, wire.PushRequest(hello=self._hello))
            async with asyncio.timeout(WELCOME_S):
                await read(call)
            self.connected, self.rejection = True, ""
            self._disconnected.clear()
            self._writer = asyncio.create_task(self._write(call))
            while True:
                reply = await read(call)
                if reply.WhichOneof("message") == "received":
                    self.on_ack()
        finally:
            if self._writer is not None:
                self._writer.cancel()
            self._disconnected.set()
            await channel.close()

    async def close_gracefully(self) -> None:
        """Send a last heartbeat, and wait until the peer has read it and ends the stream."""
        if self._writer is not None and not self._writer.done():
            self._closing = True
            self._wake_writer.set()
            await self._disconnected.wait()

    async def _write(self, call: Any) -> None:
        """Write heartbeats when they are due, and messages as they come."""
        while True:
            await write(call, wire.PushRequest(heartbeat=self._heartbeat().to_wire()))
            if self._closing:
                with contextlib.suppress(asyncio.InvalidStateError):
                    await call.done_writing()
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
                        await write(call, wire.PushRequest(chunk=chunk))

    # --- fetch -----------------------------------------------------------------------------

    def fetch(self) -> Fetched:
        """Fetch the peer's status and newest parameters. Any thread but the event loop's.

        Raises:
            SeedbedError: CONFIG; the peer rejects this learner.
            ValueError: The parameters do not fit this learner's.
        """
        assembler, fetched = ChunkAssembler(self._layout), Fetched()
        for reply in self._fetch(whole_state=False):
            if reply.HasField("member"):
                fetched = Fetched(PeerStatus.from_wire(reply.member), reply.highest_iteration)
            values = assembler.add(reply.chunk) if reply.HasField("chunk") else None
            if values is not None:
                return fetched._replace(message=Message(self.rank, reply.chunk.iteration, values))
        return fetched

    def fetch_state(self) -> tuple[int, dict[str, NDArray[Any]]]:
        """Fetch the peer's count of updates and the arrays of a checkpoint.

        Any thread but the event loop's. The arrays are empty if the peer does not answer.

        Raises:
            SeedbedError: CONFIG; the peer rejects this learner.
        """
        updates, parts = 0, list[wire.FetchReply.Array]()
        for reply in self._fetch(whole_state=True):
            if reply.HasField("member"):
                updates = reply.member.updates
            parts += reply.arrays
        return updates, state_from_wire(parts)

    def _fetch(self, whole_state: bool) -> Iterator[wire.FetchReply]:
        """Yield the replies, and end early if the peer is not reachable any more."""
        with channels.channel(self.address, self._tls) as channel:
            request = wire.FetchRequest(whole_state=whole_state, hello=self._hello)
            try:
                yield from wire_grpc.GossipStub(channel).Fetch(request, timeout=self._deadline_s)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    raise SeedbedError(
                        ExitCode.CONFIG,
                        f"learner {self.rank} at {self.address} refused this one: "
                        f"{error.details()}",
                    ) from error
