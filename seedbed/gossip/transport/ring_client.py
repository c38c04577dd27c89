"""Stream of segments to the next learner of the ring."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from seedbed.rpc import channels
from seedbed.rpc.reconnect import Attempts, describe
from seedbed.rpc.streams import write
from seedbed.rpc.tls import Tls
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

RETRY_S = 0.5
CONNECT_S = 5.0


class RingClient:
    """Reduce stream to the next learner, opened again whenever it ends.

    Segments are written in order. A segment that a failed connection loses is not sent again.
    Event loop only, except for reading the attributes.

    Args:
        address: Address of the next learner.
        hello: Hello of this learner.
        tls: Certificates, if the next learner demands them.

    Attributes:
        sent_bytes: Bytes of the segments written.
        cause: Reason why there is no connection; empty while there is one.
    """

    def __init__(self, address: str, hello: wire.GossipHello, tls: Tls | None) -> None:
        self._address, self._hello, self._tls = address, hello, tls
        self._segments: asyncio.Queue[wire.ReduceRequest.Segment] = asyncio.Queue()
        self.sent_bytes = 0
        self.cause = "not connected yet"

    def send(self, segment: wire.ReduceRequest.Segment) -> None:
        """Send a segment after those before it."""
        self._segments.put_nowait(segment)

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        async for _ in Attempts(RETRY_S, RETRY_S, jitter=False):
            try:
                await self._connect()
            except grpc.aio.AioRpcError as error:
                self.cause = describe(error)
            except ConnectionError as error:
                self.cause = str(error)

    async def _connect(self) -> None:
        channel = channels.aio_channel(self._address, self._tls)
        writer: asyncio.Task[None] | None = None
        try:
            await asyncio.wait_for(channel.channel_ready(), CONNECT_S)
            call: Any = wire_grpc.GossipStub(channel).Reduce()
            await write(call, wire.ReduceRequest(hello=self._hello))
            self.cause = ""
            writer = asyncio.create_task(self._write(call))
            # A stream that fails raises here.
            await call
            raise ConnectionError("the next learner ended the stream")
        except TimeoutError:
            raise ConnectionError(f"{self._address} does not answer") from None
        finally:
            if writer is not None:
                writer.cancel()
            await channel.close()

    async def _write(self, call: Any) -> None:
        while True:
            segment = await self._segments.get()
            await write(call, wire.ReduceRequest(segment=segment))
            self.sent_bytes += len(segment.data)
