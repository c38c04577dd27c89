"""Client of the learner that holds the shared copy: gradients go out, parameters come back."""

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import grpc.aio
from typing_extensions import override

from seedbed.gossip.parameters import FlatParams, ParameterLayout
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.chunks import ChunkAssembler, to_chunks
from seedbed.gossip.transport.peer_stream import WELCOME_S, PeerStream
from seedbed.rpc.asyncio_client import AsyncioStream
from seedbed.rpc.credentials import Credentials
from seedbed.v1 import gossip_pb2 as wire

_Stream = AsyncioStream[wire.AccumulateRequest, wire.AccumulateReply]


@dataclass(frozen=True, eq=False)
class _InFlight:
    """Gradients that are not acknowledged yet."""

    number: int
    values: FlatParams
    reply: Future[Message]


class SharedCopyClient(PeerStream):
    """Accumulate stream to learner 0.

    Gradients that are not acknowledged are sent again on the next stream, under the same number.
    Event loop only, except for reading the attributes.

    Args:
        address: Address of learner 0.
        hello: Hello of this learner.
        layout: Layout of the parameters.
        credentials: Credentials of this process.

    Attributes:
        welcome: The first parameters that learner 0 sends.
        sent: Gradients that learner 0 has acknowledged, whose bytes are `sent_bytes`.
        received: Parameters received.
        received_bytes: Bytes of these parameters.
    """

    def __init__(
        self,
        address: str,
        hello: wire.GossipHello,
        layout: ParameterLayout,
        credentials: Credentials,
    ) -> None:
        super().__init__(0, address, hello, credentials)
        self._layout = layout
        self.welcome: Future[Message] = Future()
        self.sent = self.received = self.received_bytes = 0
        self._count = 0
        self._in_flight: _InFlight | None = None
        self._wake = asyncio.Event()

    def send(self, gradients: FlatParams, reply: Future[Message]) -> None:
        """Send gradients [d], once those before them are acknowledged by a reply."""
        self._count += 1
        self._in_flight = _InFlight(self._count, gradients, reply)
        self._wake.set()

    @override
    async def _serve(self, channel: grpc.aio.Channel, stub: Any) -> None:
        call = stub.Accumulate(metadata=self._metadata())
        stream = _Stream(call)
        async with asyncio.timeout(WELCOME_S):
            newest = await self._parameters(stream)
        self.connected, self.rejection = True, ""
        if not self.welcome.done():
            self.welcome.set_result(newest)
        while True:
            while self._in_flight is None:
                self._wake.clear()
                await self._wake.wait()
            sending = self._in_flight
            for chunk in to_chunks(sending.number, sending.values):
                await stream.send(wire.AccumulateRequest(gradients=chunk))
            newest = await self._parameters(stream)
            self._in_flight = None
            self.sent += 1
            self.sent_bytes += sending.values.nbytes
            sending.reply.set_result(newest)

    async def _parameters(self, stream: _Stream) -> Message:
        """Read whole parameters.

        Raises:
            ValueError: The parameters do not fit this learner's.
        """
        assembler = ChunkAssembler(self._layout)
        while True:
            chunk = (await stream.receive()).parameters
            values = assembler.add(chunk)
            if values is not None:
                self.received += 1
                self.received_bytes += values.nbytes
                return Message(0, chunk.iteration, values)
