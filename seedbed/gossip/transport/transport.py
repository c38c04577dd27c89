"""Transport of a learner: the server for its peers, and a client of each of them."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from typing import Any, cast

import grpc
import grpc.aio
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config import Experiment
from seedbed.gossip.membership import ImplausibleGrowth, Membership
from seedbed.gossip.parameters import FlatParams, ParameterLayout, norm_of
from seedbed.gossip.shared_copy import GradientNumber, SharedCopy
from seedbed.gossip.transport.buffers import Message, ReceiveBuffer, SegmentBuffer
from seedbed.gossip.transport.chunks import CHUNK_BYTES, ChunkAssembler, state_to_wire, to_chunks
from seedbed.gossip.transport.clients import PeerClient, RingClient
from seedbed.gossip.transport.handshake import PeerRejected, check_hello
from seedbed.gossip.transport.peer_processes import PeerProcesses
from seedbed.gossip.transport.peer_stream import PeerStream
from seedbed.gossip.transport.shared_client import SharedCopyClient
from seedbed.rpc.asyncio_server import AsyncioServerStream
from seedbed.rpc.credentials import Credentials, Denial, is_local
from seedbed.rpc.hello import hello_in
from seedbed.rpc.reconnect import Attempts
from seedbed.rpc.server import ServerThread
from seedbed.rpc.stream import StreamEnded
from seedbed.rpc.streams import OpenStreams, StreamRejected
from seedbed.rpc.versions import GOSSIP_PROTOCOL_VERSION
from seedbed.runtime.threads import Threads
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)

CLOSE_S = 1.0  # for the peers to read the last heartbeat

_Stream = AsyncioServerStream[Any, Any]


def listen_address(address: str) -> str:
    """Return where to listen for peers that connect to `address`.

    An address beyond this machine is listened to on all interfaces, because the name of a pod or a
    host may have several.
    """
    return address if is_local(address) else f"[::]:{address.rsplit(':', 1)[1]}"


@contextlib.contextmanager
def _judged() -> Iterator[None]:
    """Refuse counts that no learner reaches with OUT_OF_RANGE: the peer tries again."""
    try:
        yield
    except ImplausibleGrowth as error:
        raise StreamRejected(str(error), grpc.StatusCode.OUT_OF_RANGE) from error


class GossipTransport(ServerThread, wire_grpc.GossipServicer):
    """Streams from and to all peers, from `start` to `close`.

    Methods are thread-safe, those of the server aside.

    Args:
        experiment: Name and addresses of the learners.
        membership: Receives the peers' statuses.
        layout: Layout of the parameters.
        threads: Threads of this learner, which fail with the transport.
        credentials: Credentials of this process.
        heartbeat: Returns the status of this learner.
        whole_state: Requests the arrays of a checkpoint, for all-reduce learners that are behind.

    Attributes:
        clients: Client of each peer, by rank.
        ring: Client of the ring's next learner; None without all-reduce.
        shared_client: Client of learner 0, which holds the shared copy; None without hogwild, and
            on learner 0.
        shared_copy: The shared copy, set on learner 0 under hogwild before `start`.
        receive_buffer: Newest parameters of each peer.
        segment_buffer: Segments of the ring's previous learner.
        own_norm: 2-norm of this learner's newest parameters.
    """

    share = 0.25  # the actors' streams have the rest

    def __init__(
        self,
        experiment: Experiment,
        membership: Membership,
        layout: ParameterLayout,
        threads: Threads,
        credentials: Credentials,
        heartbeat: Callable[[], wire.Member],
        whole_state: Callable[[], Future[dict[str, NDArray[Any]]]],
    ) -> None:
        settings, rank = experiment.gossip, membership.rank
        credentials = credentials.of_rank(rank)
        super().__init__(listen_address(settings.addresses[rank]), threads, credentials, "gossip")
        self.membership, self.heartbeat = membership, heartbeat
        self._layout, self._whole_state = layout, whole_state
        self.receive_buffer = ReceiveBuffer()
        # All-reduce sums the gradients and their weight.
        self.segment_buffer = SegmentBuffer(rank, membership.count, layout.size + 1)
        self._newest: Message | None = None  # broadcast of this learner
        self.own_norm, self._max_norm_ratio = 0.0, settings.max_norm_ratio
        self._streams = OpenStreams("the learner stops: try again", self._on_rejected)
        self._rejected = 0
        self._is_protected = credentials.is_demanding
        self._processes = PeerProcesses(settings.deadline_s)
        self._hello = hello = wire.GossipHello(
            protocol_version=GOSSIP_PROTOCOL_VERSION,
            experiment=experiment.name,
            rank=rank,
            learners=membership.count,
            parameters=layout.digests(),
            incarnation=secrets.randbits(63),
        )
        self.clients = {
            peer: PeerClient(
                peer, address, hello, heartbeat, settings.deadline_s, layout, credentials
            )
            for peer, address in enumerate(settings.addresses)
            if peer != rank
        }
        # A chunk or a segment.
        segment = 4 * (layout.size // membership.count + 1)
        self.max_message_bytes = max(CHUNK_BYTES, segment) + 64 * 1024
        self.ring: RingClient | None = None
        if settings.topology == "allreduce":
            following = (rank + 1) % membership.count
            self.ring = RingClient(following, settings.addresses[following], hello, credentials)
        self._topology = settings.topology
        self.shared_copy: SharedCopy | None = None
        self.shared_client: SharedCopyClient | None = None
        if settings.topology == "hogwild" and rank:
            self.shared_client = SharedCopyClient(settings.addresses[0], hello, layout, credentials)

    @override
    def _add(self, server: grpc.aio.Server) -> None:
        wire_grpc.add_GossipServicer_to_server(self, server)

    @override
    async def _begin(self) -> None:
        for client in self._all_clients():
            self._spawn(client.run())

    @override
    async def _finish(self) -> None:
        closing = [client.close_gracefully() for client in self.clients.values()]
        with contextlib.suppress(TimeoutError):  # a peer does not read any more
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), CLOSE_S)
        for task in self._tasks:
            task.cancel()
        self._streams.close()

    # --- to the peers ----------------------------------------------------------------------

    def broadcast(self, message: Message, receivers: Collection[int]) -> None:
        """Send parameters to each of `receivers`. Never waits.

        A receiver that has not acknowledged the last message gets the newest one afterwards.

        Args:
            message: Its values must never change.
            receivers: Ranks of the out-peers.
        """
        self._newest, self.own_norm = message, norm_of(message.values)
        for peer in receivers:
            if self.clients[peer].connected:
                self._soon(self.clients[peer].send_latest, message)

    def send_segment(self, update: int, hop: int, data: bytes) -> None:
        """Send a segment to the next learner of the ring. Never waits.

        Args:
            update: Update that the segment belongs to.
            hop: Number of the hop around the ring, from 0.
            data: Little-endian float32.
        """
        assert self.ring is not None
        self._soon(self.ring.send, wire.ReduceRequest.Segment(update=update, step=hop, data=data))

    def send_gradients(self, gradients: FlatParams) -> Future[Message]:
        """Send gradients to the shared copy of learner 0. Never waits.

        Args:
            gradients: Gradients [d], which must never change.

        Returns:
            The newest parameters of the shared copy.
        """
        assert self.shared_client is not None
        reply: Future[Message] = Future()
        self._soon(self.shared_client.send, gradients, reply)
        return reply

    def request_statuses(self) -> Future[dict[int, wire.Member]]:
        """Request the status of each peer at its address: by rank, of those that answer."""
        result: Future[dict[int, wire.Member]] = Future()
        self._soon(lambda: self._spawn(self._request_statuses(result)))
        return result

    async def _request_statuses(self, result: Future[dict[int, wire.Member]]) -> None:
        ranks = list(self.clients)
        replies = await asyncio.gather(*(self.clients[rank].request_status() for rank in ranks))
        found = {rank: reply.member for rank, reply in zip(ranks, replies, strict=True) if reply}
        for rank, member in found.items():
            self.membership.update(rank, member, is_requested=True)
        result.set_result(found)

    def check_norm(self, values: FlatParams) -> None:
        """Check that a peer's parameters are about as large as this learner's.

        Args:
            values: Parameters [d] of the peer.

        Raises:
            ValueError: One norm is more than `gossip.max_norm_ratio` times the other.
        """
        theirs, own = norm_of(values), self.own_norm
        # A learner that has hardly begun may be at zero.
        ratio = max(theirs, 1.0) / max(own, 1.0)
        if not 1 / self._max_norm_ratio <= ratio <= self._max_norm_ratio:
            theirs = float(np.linalg.norm(values.astype(np.float64)))
            raise ValueError(
                f"parameters of norm {theirs:.6g} there and {own:.6g} here, and "
                f"gossip.max_norm_ratio is {self._max_norm_ratio:g}"
            )

    def rejection(self) -> str:
        """Return the reason why a peer does not accept this learner; empty if there is none."""
        return next(filter(None, (client.rejection for client in self._all_clients())), "")

    @property
    def refused(self) -> int:
        """Return the number of streams that ended because a peer's message was refused."""
        return self._rejected + sum(client.refused for client in self._all_clients())

    def _all_clients(self) -> list[PeerStream]:
        return [*self.clients.values(), *filter(None, (self.ring, self.shared_client))]

    # --- from the peers, in the event loop ---------------------------------------------------

    def _on_rejected(self, _: StreamRejected) -> None:
        self._rejected += 1

    @override
    def _on_denied(self, _: Denial) -> None:
        self._rejected += 1

    @override
    async def Push(self, _: Any, context: Any) -> None:
        stream = AsyncioServerStream[wire.PushReply, wire.PushRequest](context)
        await self._streams.serve(stream, lambda: self._push(stream))

    @override
    async def Reduce(self, _: Any, context: Any) -> wire.ReduceReply:
        stream = AsyncioServerStream[Any, wire.ReduceRequest](context)
        await self._streams.serve(stream, lambda: self._reduce(stream))
        return wire.ReduceReply()

    async def _check_hello(self, stream: _Stream, method: str) -> int:
        """Check the Hello, end the peer's older stream, and return the peer's rank."""
        hello = self._hello_of(stream)
        rank: int = hello.rank
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        is_new, replaced = self._processes.admit(rank, hello.incarnation, method, task)
        if is_new:
            self.membership.on_process(rank)
            log.info("learner %d has connected", rank)
            self._spawn(self._confirm(rank, hello.incarnation))
        for older in replaced:
            text = f"learner {rank} has opened a newer stream"
            self._streams.end(older, StreamRejected(text, grpc.StatusCode.UNAVAILABLE))
        return rank

    def _hello_of(self, stream: _Stream) -> wire.GossipHello:
        """Return the Hello of a call that fits this learner, of the rank whose key the call has.

        Raises:
            PeerRejected: The peer does not fit this learner.
            StreamRejected: PERMISSION_DENIED: the key is another rank's.
        """
        metadata = stream.invocation_metadata()
        hello = hello_in(metadata, wire.GossipHello)
        check_hello(self._hello, hello, self._layout, self._is_protected)
        rank = self._credentials.rank_of(metadata)
        if rank not in (None, hello.rank):
            text = f"the key is of learner {rank}, and the Hello of learner {hello.rank}"
            raise StreamRejected(text, grpc.StatusCode.PERMISSION_DENIED)
        return hello

    async def _confirm(self, rank: int, incarnation: int) -> None:
        """Keep what a peer's process states once its address answers as the same process."""
        async for _ in Attempts():
            reply = await self.clients[rank].request_status()
            if self._processes.incarnation(rank) != incarnation:
                return  # another one has taken its place
            if reply is not None:
                if reply.incarnation == incarnation:
                    self.membership.on_proof(rank)
                return

    async def _push(self, stream: _Stream) -> None:
        rank = await self._check_hello(stream, "Push")
        await self._streams.write(stream, wire.PushReply(welcome=wire.PushReply.Welcome()))
        assembler = ChunkAssembler(self._layout)
        while True:
            message = await stream.receive()
            self._processes.on_message(rank)
            kind = message.WhichOneof("message")
            if kind == "heartbeat":
                with _judged():
                    self.membership.update(rank, message.heartbeat, own=self.heartbeat())
            elif kind == "chunk":
                values = assembler.add(message.chunk)
                if values is not None:
                    try:
                        self.check_norm(values)
                    except ValueError:
                        self.membership.on_refusal(rank)
                        raise
                    iteration = message.chunk.iteration
                    with _judged():
                        self.membership.on_parameters(rank, iteration, own=self.heartbeat())
                    self.receive_buffer.put(Message(rank, iteration, values))
                    received = wire.PushReply.Received(iteration=iteration)
                    await self._streams.write(stream, wire.PushReply(received=received))
            else:
                raise ValueError(f"expected a heartbeat or a chunk, not {kind or 'nothing'}")

    async def _reduce(self, stream: _Stream) -> None:
        if self.ring is None:
            raise PeerRejected(f"gossip.topology is {self._topology} here: there is no ring")
        rank = await self._check_hello(stream, "Reduce")
        previous = (self.membership.rank - 1) % self.membership.count
        if rank != previous:
            raise ValueError(f"learner {previous} sends to this one, not learner {rank}")
        self.segment_buffer.on_connect()
        try:
            while True:
                message = await stream.receive()
                self._processes.on_message(rank)
                if message.WhichOneof("message") != "segment":
                    raise ValueError("expected a segment")
                segment = message.segment
                self.segment_buffer.put(segment.update, segment.step, segment.data)
        except StreamEnded:
            raise  # the last segments of a learner that has finished are still taken
        except Exception:
            self.segment_buffer.drop()
            raise

    @override
    async def Accumulate(self, _: Any, context: Any) -> None:
        stream = AsyncioServerStream[wire.AccumulateReply, wire.AccumulateRequest](context)
        await self._streams.serve(stream, lambda: self._accumulate(stream))

    async def _accumulate(self, stream: _Stream) -> None:
        if self.shared_copy is None:
            raise PeerRejected(
                f"learner {self.membership.rank} with gossip.topology {self._topology} holds no "
                "shared copy"
            )
        rank = await self._check_hello(stream, "Accumulate")
        incarnation = self._processes.incarnation(rank)
        await self._send_parameters(stream, self.shared_copy.request())
        assembler = ChunkAssembler(self._layout)
        while True:
            message = await stream.receive()
            self._processes.on_message(rank)
            if not message.HasField("gradients"):
                raise ValueError("expected gradients")
            gradients = assembler.add(message.gradients)
            if gradients is not None:
                number = GradientNumber(rank, incarnation, message.gradients.iteration)
                await self._send_parameters(stream, self.shared_copy.request(gradients, number))

    async def _send_parameters(self, stream: _Stream, newest: Future[Message]) -> None:
        message = await asyncio.wrap_future(newest)
        for chunk in to_chunks(message.iteration, message.values):
            await self._streams.write(stream, wire.AccumulateReply(parameters=chunk))

    @override
    async def Fetch(self, request: wire.FetchRequest, context: Any) -> None:
        stream = AsyncioServerStream[wire.FetchReply, Any](context)
        await self._streams.serve(stream, lambda: self._fetch(request, stream))

    async def _fetch(self, request: wire.FetchRequest, stream: _Stream) -> None:
        try:
            hello = self._hello_of(stream)
        except PeerRejected as rejection:
            code = grpc.StatusCode.UNAVAILABLE if rejection.is_transient else None
            raise StreamRejected(str(rejection), code or rejection.code) from rejection
        await self._streams.write(
            stream,
            wire.FetchReply(
                member=self.heartbeat(),
                highest_iteration=self.membership.highest_iteration(hello.rank),
                incarnation=self._hello.incarnation,
            ),
        )
        if request.whole_state:
            state = await asyncio.wrap_future(self._whole_state())
            for reply in state_to_wire(state):
                await self._streams.write(stream, reply)
        elif self._newest is not None:
            for chunk in to_chunks(self._newest.iteration, self._newest.values):
                await self._streams.write(stream, wire.FetchReply(chunk=chunk))
