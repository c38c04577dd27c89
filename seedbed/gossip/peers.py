"""A learner among its peers: the server on which it hears them, and the streams to each of them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import grpc
import grpc.aio
import numpy as np
from numpy.typing import NDArray

from seedbed.config import Experiment
from seedbed.gossip.chunks import Assembly
from seedbed.gossip.layout import Layout
from seedbed.gossip.link import Link
from seedbed.gossip.mailbox import Mailbox, Message
from seedbed.gossip.membership import Membership, PeerStatus
from seedbed.gossip.ring import Inbox
from seedbed.gossip.segments import SegmentStream
from seedbed.gossip.servicer import GossipServicer, member_of
from seedbed.rpc import channels
from seedbed.rpc.server import ServerThread
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

BEATS = 5  # within a deadline
LONGEST_BEAT_S = 1.0


def listen_address(address: str) -> str:
    """Where a learner listens whose peers connect to `address`: on all interfaces."""
    return address if address.startswith("unix:") else f"0.0.0.0:{address.rsplit(':', 1)[1]}"


class Peers(ServerThread):
    """Hears and is heard, until `close`. Its methods may be called in any thread.

    Args:
        beat: how this learner is doing.
        whole_state: its state as a checkpoint has it, for all-reduce learners that come late.
    """

    def __init__(
        self,
        experiment: Experiment,
        members: Membership,
        layout: Layout,
        threads: Threads,
        tls: Tls | None,
        beat: Callable[[], PeerStatus],
        whole_state: Callable[[], Future[dict[str, NDArray[Any]]]],
    ) -> None:
        settings, rank = experiment.gossip, members.rank
        super().__init__(listen_address(settings.addresses[rank]), threads, tls, "gossip")
        self._addresses = settings.addresses
        self._deadline_s = settings.deadline_s
        self._layout = layout
        self.members = members
        self.mailbox, self.inbox = Mailbox(), Inbox()
        self._servicer = GossipServicer(
            experiment.name, members, layout, self.mailbox, self.inbox, whole_state
        )
        self._servicer.beat = self.own = beat  # how this learner is doing
        self._hello = hello = self._servicer.hello(secrets.randbits(63))
        beat_s = min(LONGEST_BEAT_S, settings.deadline_s / BEATS)
        self.links = {
            peer: Link(peer, address, hello, beat, beat_s, tls)
            for peer, address in enumerate(settings.addresses)
            if peer != rank
        }
        after = settings.addresses[(rank + 1) % members.count]
        reduces = settings.topology == "allreduce"
        self.segments = SegmentStream(after, hello, tls) if reduces else None
        self._tasks: list[asyncio.Task[None]] = []

    def _add(self, server: grpc.aio.Server) -> None:
        wire_grpc.add_GossipServicer_to_server(self._servicer, server)

    async def _begin(self) -> None:
        parts = [link.run() for link in self.links.values()]
        if self.segments is not None:
            parts.append(self.segments.run())
        self._tasks = [asyncio.create_task(part) for part in parts]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._threads.fail("gossip", task.exception() or RuntimeError())

    async def _finish(self) -> None:
        farewells = [link.farewell() for link in self.links.values()]
        with contextlib.suppress(TimeoutError):  # a peer that does not read any more
            await asyncio.wait_for(
                asyncio.gather(*farewells, return_exceptions=True), LONGEST_BEAT_S
            )
        for task in self._tasks:
            task.cancel()
        self._servicer.finish()

    # --- sending ---------------------------------------------------------------------------

    def broadcast(self, message: Message, to: Collection[int]) -> None:
        """Send parameters, to each of `to` once it has received the last ones. Never waits.

        `message.values` must never change afterwards.
        """
        self._servicer.newest = message
        links = [self.links[peer] for peer in to]
        if any(link.up for link in links):
            self._soon(_offer, links, message)

    def send_segment(self, update: int, step: int, data: bytes) -> None:
        """Send a segment to the next learner of the ring. Never waits."""
        assert self.segments is not None
        self._soon(
            self.segments.send, wire.ReduceRequest.Segment(update=update, step=step, data=data)
        )

    def refusal(self) -> str:
        """Why a peer does not want this learner, in words; empty where none says so."""
        for link in self.links.values():
            if link.refused:
                return f"learner {link.rank} at {link.address} refused this one: {link.refused}"
        return ""

    # --- fetching --------------------------------------------------------------------------

    def fetch(self, peer: int) -> tuple[PeerStatus | None, int, Message | None]:
        """How a peer is doing, None where it does not answer; the highest local iteration of this
        learner that it has heard of; and the newest parameters that it has broadcast, None where
        there are none yet.

        Raises:
            SeedbedError: CONFIG; it refuses this learner.
            ValueError: they do not fit this learner's.
        """
        assembly, member, known = Assembly(self._layout), None, 0
        for reply in self._fetch(peer, whole=False):
            if reply.HasField("member"):
                member, known = member_of(reply.member), reply.yours
            values = assembly.add(reply.chunk) if reply.HasField("chunk") else None
            if values is not None:
                return member, known, Message(peer, reply.chunk.iteration, values)
        return member, known, None

    def fetch_state(self, peer: int) -> tuple[int, dict[str, NDArray[Any]]]:
        """A peer's count of updates and its state, as a checkpoint has it; empty where it does not
        answer.
        """
        updates, parts = 0, dict[str, list[Any]]()
        shapes = dict[str, tuple[str, tuple[int, ...]]]()
        for reply in self._fetch(peer, whole=True):
            if reply.HasField("member"):
                updates = reply.member.updates
            for array in reply.arrays:
                parts.setdefault(array.name, []).append(array.data)
                shapes[array.name] = array.dtype, tuple(array.shape)
        arrays = {
            name: np.frombuffer(b"".join(data), shapes[name][0]).reshape(shapes[name][1])
            for name, data in parts.items()
        }
        return updates, arrays

    def _fetch(self, peer: int, whole: bool) -> Any:
        with channels.channel(self._addresses[peer], self._tls) as channel:
            stub = wire_grpc.GossipStub(channel)
            request = wire.FetchRequest(whole=whole, hello=self._hello)
            try:
                yield from stub.Fetch(request, timeout=self._deadline_s)
            except grpc.RpcError as error:  # it is not there, has gone, or refuses
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    raise SeedbedError(
                        ExitCode.CONFIG,
                        f"learner {peer} at {self._addresses[peer]} refused this one: "
                        f"{error.details()}",
                    ) from error


def _offer(links: list[Link], message: Message) -> None:
    for link in links:
        link.offer(message)
