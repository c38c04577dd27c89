"""Receiving end of the streams between learners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc
import grpc.aio
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.gossip.membership import Membership, PeerStatus
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.buffers import Message, ReceiveBuffer, SegmentBuffer
from seedbed.gossip.transport.chunks import ChunkAssembler, state_to_wire, to_chunks
from seedbed.gossip.transport.handshake import PeerRejected, check_hello
from seedbed.rpc.streams import OpenStreams, expect_hello
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)


class GossipServicer(wire_grpc.GossipServicer):
    """Server of Push, Fetch and Reduce. Event loop only.

    Args:
        hello: Hello of this learner, which peers must fit.
        membership: Receives the peers' statuses.
        layout: Layout of the parameters.
        heartbeat: Returns the status of this learner.
        whole_state: Requests the arrays of a checkpoint.

    Attributes:
        receive_buffer: Newest parameters of each peer.
        segment_buffer: Segments of the ring's previous learner.
        newest: Newest broadcast of this learner; None before the first one.
    """

    def __init__(
        self,
        hello: wire.GossipHello,
        membership: Membership,
        layout: ParameterLayout,
        heartbeat: Callable[[], PeerStatus],
        whole_state: Callable[[], Future[dict[str, NDArray[Any]]]],
    ) -> None:
        self._hello, self._membership, self._layout = hello, membership, layout
        self.receive_buffer, self.segment_buffer = ReceiveBuffer(), SegmentBuffer()
        self._heartbeat, self._whole_state = heartbeat, whole_state
        self.newest: Message | None = None
        self._streams = OpenStreams("the learner stops: try again")
        self._incarnations: dict[int, int] = {}

    def close(self) -> None:
        """End every stream, present and future."""
        self._streams.close()

    @override
    async def Push(self, _: Any, context: Any) -> None:
        await self._streams.serve(context, lambda: self._push(context))

    @override
    async def Reduce(self, _: Any, context: Any) -> wire.ReduceReply:
        await self._streams.serve(context, lambda: self._reduce(context))
        return wire.ReduceReply()

    async def _check_hello(self, context: Any) -> int:
        """Read and check the hello, and return the rank of the peer."""
        hello = await expect_hello(context)
        check_hello(self._hello, hello, self._layout)
        rank: int = hello.rank
        if self._incarnations.get(rank) != hello.incarnation:
            self._incarnations[rank] = hello.incarnation
            log.info("learner %d has connected", rank)
        return rank

    async def _push(self, context: Any) -> None:
        rank = await self._check_hello(context)
        await context.write(wire.PushReply(welcome=wire.PushReply.Welcome()))
        assembler = ChunkAssembler(self._layout)
        while (message := await context.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            if kind == "heartbeat":
                self._membership.update(rank, PeerStatus.from_wire(message.heartbeat))
            elif kind == "chunk":
                values = assembler.add(message.chunk)
                if values is not None:
                    iteration = message.chunk.iteration
                    self._membership.on_parameters(rank, iteration)
                    self.receive_buffer.put(Message(rank, iteration, values))
                    received = wire.PushReply.Received(iteration=iteration)
                    await context.write(wire.PushReply(received=received))
            else:
                raise ValueError(f"expected a heartbeat or a chunk, not {kind or 'nothing'}")

    async def _reduce(self, context: Any) -> None:
        rank = await self._check_hello(context)
        previous = (self._membership.rank - 1) % self._membership.count
        if rank != previous:
            raise ValueError(f"learner {previous} sends to this one, not learner {rank}")
        self.segment_buffer.on_connect()
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.WhichOneof("message") != "segment":
                raise ValueError("expected a segment")
            segment = message.segment
            self.segment_buffer.put(segment.update, segment.step, segment.data)

    @override
    async def Fetch(self, request: wire.FetchRequest, context: Any) -> None:
        try:
            check_hello(self._hello, request.hello, self._layout)
        except PeerRejected as rejection:
            log.warning("refused %s: %s", context.peer(), rejection)
            final, transient = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE
            await context.abort(transient if rejection.is_transient else final, str(rejection))
        await context.write(
            wire.FetchReply(
                member=self._heartbeat().to_wire(),
                highest_iteration=self._membership.highest_iteration(request.hello.rank),
            )
        )
        if request.whole_state:
            state = await asyncio.wrap_future(self._whole_state())
            for reply in state_to_wire(state):
                await context.write(reply)
        elif self.newest is not None:
            for chunk in to_chunks(self.newest.iteration, self.newest.values):
                await context.write(wire.FetchReply(chunk=chunk))
