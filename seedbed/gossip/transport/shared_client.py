"""Client of the learner that holds the shared copy: gradients go out, parameters come back."""

import asyncio
import logging
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from seedbed.gossip.parameters import FlatParams, ParameterLayout
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.chunks import ChunkAssembler, to_chunks
from seedbed.gossip.transport.clients import REJECTIONS, WELCOME_S
from seedbed.rpc import channels
from seedbed.rpc.credentials import Credentials
from seedbed.rpc.reconnect import Attempts, describe, details_of
from seedbed.rpc.streams import read, write
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _InFlight:
    """Gradients that are not acknowledged yet."""

    number: int
    values: FlatParams
    reply: Future[Message]


class SharedCopyClient:
    """Accumulate stream to learner 0, opened again whenever it ends.

    Gradients that are not acknowledged are sent again on the next stream, under the same number.
    Event loop only, except for reading the attributes.

    Args:
        address: Address of learner 0.
        hello: Hello of this learner.
        layout: Layout of the parameters.
        credentials: Credentials of this process.

    Attributes:
        welcome: The first parameters that learner 0 sends.
        sent: Gradients that learner 0 has acknowledged.
        sent_bytes: Bytes of these gradients.
        received: Parameters received.
        received_bytes: Bytes of these parameters.
        rejection: Reason why learner 0 does not accept this learner; or empty.
        refused: Answers of learner 0 that were refused.
    """

    def __init__(
        self,
        address: str,
        hello: wire.GossipHello,
        layout: ParameterLayout,
        credentials: Credentials,
    ) -> None:
        self._address, self._hello = address, hello
        self._layout, self._credentials = layout, credentials
        self.welcome: Future[Message] = Future()
        self.sent = self.sent_bytes = self.received = self.received_bytes = 0
        self.rejection = ""
        self.refused = 0
        self._count = 0
        self._in_flight: _InFlight | None = None
        self._wake = asyncio.Event()

    def send(self, gradients: FlatParams, reply: Future[Message]) -> None:
        """Send gradients [d], once those before them are acknowledged by a reply."""
        self._count += 1
        self._in_flight = _InFlight(self._count, gradients, reply)
        self._wake.set()

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        last_cause = ""
        async for _ in Attempts():
            try:
                await self._connect()
            except grpc.aio.AioRpcError as error:
                cause = describe(error)
                rejects = error.code() in REJECTIONS
                self.rejection = (
                    f"learner 0 at {self._address} refused this one: {details_of(error)}"
                    if rejects
                    else ""
                )
            except ValueError as error:
                self.refused += 1
                cause = f"its parameters are refused: {error}"
            except (TimeoutError, ConnectionError) as error:
                cause = str(error) or "no answer"
            if cause != last_cause:
                last_cause = cause
                log.info("learner 0 at %s: %s", self._address, cause)

    async def _connect(self) -> None:
        async with channels.aio_channel(self._address, self._credentials) as channel:
            metadata = self._credentials.metadata()
            call: Any = wire_grpc.GossipStub(channel).Accumulate(metadata=metadata)
            await write(call, wire.AccumulateRequest(hello=self._hello))
            async with asyncio.timeout(WELCOME_S):
                newest = await self._read(call)
            self.rejection = ""
            if not self.welcome.done():
                self.welcome.set_result(newest)
            while True:
                while self._in_flight is None:
                    self._wake.clear()
                    await self._wake.wait()
                sending = self._in_flight
                for chunk in to_chunks(sending.number, sending.values):
                    await write(call, wire.AccumulateRequest(gradients=chunk))
                newest = await self._read(call)
                self._in_flight = None
                self.sent += 1
                self.sent_bytes += sending.values.nbytes
                sending.reply.set_result(newest)

    async def _read(self, call: Any) -> Message:
        """Read whole parameters.

        Raises:
            ValueError: The parameters do not fit this learner's.
        """
        assembler = ChunkAssembler(self._layout)
        while True:
            reply = await read(call)
            if reply is None:  # gRPC has logged it
                self.refused += 1
                raise ConnectionError("its answer cannot be read")
            chunk = reply.parameters
            values = assembler.add(chunk)
            if values is not None:
                self.received += 1
                self.received_bytes += values.nbytes
                return Message(0, chunk.iteration, values)
