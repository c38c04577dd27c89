"""The stream on which a learner sends its segments to the next one of the ring."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from seedbed.gossip.link import write
from seedbed.rpc import channels
from seedbed.rpc.tls import Tls
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

RETRY_S = 0.5


class SegmentStream:
    """Sends in order; what a connection has lost is lost. Event loop only, but for what is read.

    Attributes:
        sent_bytes: of segments that were written.
        cause: why it is not connected, in words; empty while it is.
    """

    def __init__(self, address: str, hello: wire.GossipHello, tls: Tls | None) -> None:
        self.address, self._hello, self._tls = address, hello, tls
        self._given: asyncio.Queue[wire.ReduceRequest.Segment] = asyncio.Queue()
        self.sent_bytes = 0
        self.cause = "not connected yet"

    def send(self, segment: wire.ReduceRequest.Segment) -> None:
        """Send a segment once those before it are written."""
        self._given.put_nowait(segment)

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        while True:
            try:
                await self._connect()
            except grpc.aio.AioRpcError as error:
                self.cause = f"{error.code().name}: {error.details()}"
            except ConnectionError as error:
                self.cause = str(error)
            await asyncio.sleep(RETRY_S)

    async def _connect(self) -> None:
        channel = channels.aio_channel(self.address, self._tls)
        writing: asyncio.Task[None] | None = None
        try:
            await asyncio.wait_for(channel.channel_ready(), 10 * RETRY_S)
            call: Any = wire_grpc.GossipStub(channel).Reduce()
            await write(call, wire.ReduceRequest(hello=self._hello))
            self.cause = ""
            writing = asyncio.create_task(self._write(call))
            await call  # until it ends, which it does by an error
            raise ConnectionError("it ended the stream")
        except TimeoutError:
            raise ConnectionError(f"{self.address} does not answer") from None
        finally:
            if writing is not None:
                writing.cancel()
            await channel.close()

    async def _write(self, call: Any) -> None:
        while True:
            segment = await self._given.get()
            await write(call, wire.ReduceRequest(segment=segment))
            self.sent_bytes += len(segment.data)
