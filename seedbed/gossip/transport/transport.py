"""Transport of a learner: the server for its peers, and a client of each of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import grpc.aio
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.config import Experiment
from seedbed.gossip.membership import Membership, PeerStatus
from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.handshake import make_hello
from seedbed.gossip.transport.peer_client import PeerClient
from seedbed.gossip.transport.ring_client import RingClient
from seedbed.gossip.transport.servicer import GossipServicer
from seedbed.rpc.server import ServerThread
from seedbed.rpc.tls import Tls
from seedbed.runtime.threads import Threads
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

CLOSE_S = 1.0  # for the peers to read the last heartbeat


def listen_address(address: str) -> str:
    """Return where to listen, on all interfaces, for peers that connect to `address`."""
    return address if address.startswith("unix:") else f"0.0.0.0:{address.rsplit(':', 1)[1]}"


class GossipTransport(ServerThread):
    """Streams from and to all peers, from `start` to `close`. Methods are thread-safe.

    Args:
        experiment: Name and addresses of the learners.
        membership: Receives the peers' statuses.
        layout: Layout of the parameters.
        threads: Threads of this learner, which fail with the transport.
        tls: Certificates, if peers demand them.
        heartbeat: Returns the status of this learner.
        whole_state: Requests the arrays of a checkpoint, for all-reduce learners that are behind.

    Attributes:
        clients: Client of each peer, by rank.
        ring: Client of the ring's next learner; None without all-reduce.
        receive_buffer: Newest parameters of each peer.
        segment_buffer: Segments of the ring's previous learner.
    """

    def __init__(
        self,
        experiment: Experiment,
        membership: Membership,
        layout: ParameterLayout,
        threads: Threads,
        tls: Tls | None,
        heartbeat: Callable[[], PeerStatus],
        whole_state: Callable[[], Future[dict[str, NDArray[Any]]]],
    ) -> None:
        settings, rank = experiment.gossip, membership.rank
        super().__init__(listen_address(settings.addresses[rank]), threads, tls, "gossip")
        self.membership, self.heartbeat = membership, heartbeat
        hello = make_hello(experiment.name, membership, layout)
        self._servicer = GossipServicer(hello, membership, layout, heartbeat, whole_state)
        self.receive_buffer = self._servicer.receive_buffer
        self.segment_buffer = self._servicer.segment_buffer
        self.clients = {
            peer: PeerClient(peer, address, hello, heartbeat, settings.deadline_s, layout, tls)
            for peer, address in enumerate(settings.addresses)
            if peer != rank
        }
        self.ring: RingClient | None = None
        if settings.topology == "allreduce":
            self.ring = RingClient(settings.addresses[(rank + 1) % membership.count], hello, tls)
        self._tasks: list[asyncio.Task[None]] = []

    @override
    def _add(self, server: grpc.aio.Server) -> None:
        wire_grpc.add_GossipServicer_to_server(self._servicer, server)

    @override
    async def _begin(self) -> None:
        streams = [client.run() for client in self.clients.values()]
        if self.ring is not None:
            streams.append(self.ring.run())
        self._tasks = [asyncio.create_task(stream) for stream in streams]
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._threads.fail("gossip", task.exception() or RuntimeError())

    @override
    async def _finish(self) -> None:
        closing = [client.close_gracefully() for client in self.clients.values()]
        with contextlib.suppress(TimeoutError):  # a peer does not read any more
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), CLOSE_S)
        for task in self._tasks:
            task.cancel()
        self._servicer.close()

    def broadcast(self, message: Message, receivers: Collection[int]) -> None:
        """Send parameters to each of `receivers`. Never waits.

        A receiver that has not acknowledged the last message gets the newest one afterwards.

        Args:
            message: Its values must never change.
            receivers: Ranks of the out-peers.
        """
        self._servicer.newest = message
        clients = [self.clients[peer] for peer in receivers]
        if any(client.connected for client in clients):
            self._soon(_send_latest, clients, message)

    def send_segment(self, update: int, hop: int, data: bytes) -> None:
        """Send a segment to the next learner of the ring. Never waits."""
        assert self.ring is not None
        self._soon(self.ring.send, wire.ReduceRequest.Segment(update=update, step=hop, data=data))

    def rejection(self) -> str:
        """Return the reason why a peer does not accept this learner; empty if there is none."""
        for client in self.clients.values():
            if reason := client.rejection:
                return f"learner {client.rank} at {client.address} refused this one: {reason}"
        return ""


def _send_latest(clients: list[PeerClient], message: Message) -> None:
    for client in clients:
        client.send_latest(message)
