"""A learner's ear: what its peers push, fetch and reduce."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc
import grpc.aio
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from seedbed.gossip.chunks import CHUNK_BYTES, Assembly, chunks
from seedbed.gossip.layout import Layout
from seedbed.gossip.mailbox import Mailbox, Message
from seedbed.gossip.membership import Membership, PeerStatus
from seedbed.gossip.ring import Inbox
from seedbed.rpc.versions import GOSSIP_PROTOCOL_VERSION
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0


class Refused(Exception):
    """A peer that does not fit.

    Attributes:
        passes: it may fit soon: learners of a release are upgraded one after the other.
    """

    def __init__(self, words: str, passes: bool = False) -> None:
        super().__init__(words)
        self.passes = passes


class GossipServicer(wire_grpc.GossipServicer):
    """Event loop only.

    Attributes:
        newest: what this learner has broadcast last; None before the first time.
    """

    def __init__(
        self,
        experiment: str,
        members: Membership,
        layout: Layout,
        mailbox: Mailbox,
        inbox: Inbox,
        whole_state: Callable[[], Future[dict[str, NDArray[Any]]]],
    ) -> None:
        self._experiment = experiment
        self._members = members
        self._layout = layout
        self._mailbox = mailbox
        self._inbox = inbox
        self._whole_state = whole_state
        self.newest: Message | None = None
        self.beat: Callable[[], PeerStatus] = PeerStatus
        self._streams: set[asyncio.Task[Any]] = set()
        self._ending = False
        self._incarnations: dict[int, int] = {}

    def hello(self, incarnation: int) -> wire.GossipHello:
        """What this learner says first on its own streams."""
        return wire.GossipHello(
            protocol_version=GOSSIP_PROTOCOL_VERSION,
            experiment=self._experiment,
            rank=self._members.rank,
            learners=self._members.count,
            parameters=self._layout.message(),
            incarnation=incarnation,
        )

    def finish(self) -> None:
        """End every stream, now and later."""
        self._ending = True
        for task in self._streams:
            task.cancel()

    async def Push(self, _: Any, context: Any) -> None:
        """A peer's beats and parameters, from Hello to the end of its stream."""
        await self._stream(context, self._push)

    async def Reduce(self, _: Any, context: Any) -> wire.ReduceReply:
        """The segments of the learner before this one."""
        await self._stream(context, self._reduce)
        return wire.ReduceReply()

    async def _stream(self, context: Any, serve: Callable[[Any], Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        code, words = grpc.StatusCode.UNAVAILABLE, "the learner stops: try again"
        try:
            if not self._ending:
                await serve(context)
                return
        except asyncio.CancelledError:
            if not self._ending:
                raise  # the peer went away
            task.uncancel()
        except Refused as refusal:
            code, words = grpc.StatusCode.FAILED_PRECONDITION, str(refusal)
        except (ValueError, DecodeError) as error:
            code, words = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        finally:
            self._streams.discard(task)
        if code is not grpc.StatusCode.UNAVAILABLE:
            log.warning("refused %s: %s", context.peer(), words)
        await context.abort(code, words)

    async def _greet(self, context: Any) -> int:
        """The rank of a peer that fits."""
        try:
            message = await asyncio.wait_for(context.read(), HELLO_TIMEOUT_S)
        except TimeoutError:
            raise ValueError(f"no hello within {HELLO_TIMEOUT_S:g} s") from None
        if message is grpc.aio.EOF or message.WhichOneof("message") != "hello":
            raise ValueError("hello must come first")
        rank = self._fitting(message.hello)
        if self._incarnations.get(rank) != message.hello.incarnation:
            self._incarnations[rank] = message.hello.incarnation
            log.info("learner %d has come", rank)
        return rank

    def _fitting(self, hello: wire.GossipHello) -> int:
        """The rank of a peer that fits; Refused of one that does not."""
        own = self._members
        if hello.protocol_version != GOSSIP_PROTOCOL_VERSION:
            raise Refused(
                f"gossip protocol {GOSSIP_PROTOCOL_VERSION} here and {hello.protocol_version} "
                "there: run the same release",
                passes=True,
            )
        if hello.experiment != self._experiment:
            raise Refused(
                f"experiment {self._experiment!r} here and {hello.experiment!r} there: "
                "gossip.addresses name learners of one experiment"
            )
        if hello.learners != own.count or not hello.rank < own.count or hello.rank == own.rank:
            raise Refused(
                f"learner {own.rank} of {own.count} here, and {hello.rank} of {hello.learners} "
                "there: give all of them the same gossip.replicas, and each a rank of its own",
                passes=True,
            )
        difference = self._layout.difference(hello.parameters)
        if difference:
            raise Refused(f"{difference}: learners that gossip have the same network")
        rank: int = hello.rank
        return rank

    async def _push(self, context: Any) -> None:
        rank = await self._greet(context)
        await context.write(wire.PushReply(welcome=wire.PushReply.Welcome()))
        assembly = Assembly(self._layout)
        while (message := await context.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            if kind == "beat":
                self._members.update(rank, member_of(message.beat))
            elif kind == "chunk":
                values = assembly.add(message.chunk)
                if values is not None:
                    iteration = message.chunk.iteration
                    self._members.on_parameters(rank, iteration)
                    self._mailbox.put(Message(rank, iteration, values))
                    received = wire.PushReply.Received(iteration=iteration)
                    await context.write(wire.PushReply(received=received))
            else:
                raise ValueError(f"a beat or a chunk, not {kind or 'nothing'}")

    async def _reduce(self, context: Any) -> None:
        rank = await self._greet(context)
        before = (self._members.rank - 1) % self._members.count
        if rank != before:
            raise ValueError(f"learner {before} sends to this one, not learner {rank}")
        self._inbox.opened()
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.WhichOneof("message") != "segment":
                raise ValueError("a segment is expected")
            segment = message.segment
            self._inbox.put(segment.update, segment.step, segment.data)

    async def Fetch(self, request: wire.FetchRequest, context: Any) -> None:
        """What a learner that comes begins with: the newest broadcast, or the whole state."""
        try:
            rank = self._fitting(request.hello)
        except Refused as refusal:
            log.warning("refused %s: %s", context.peer(), refusal)
            refused, later = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE
            await context.abort(later if refusal.passes else refused, str(refusal))
        yours = self._members.highest_iteration(rank)
        await context.write(wire.FetchReply(member=message_of(self.beat()), yours=yours))
        if request.whole:
            arrays = await asyncio.wrap_future(self._whole_state())
            for name, array in arrays.items():
                await _write_array(context, name, array)
        elif self.newest is not None:
            for chunk in chunks(self.newest.iteration, self.newest.values):
                await context.write(wire.FetchReply(chunk=chunk))


async def _write_array(context: Any, name: str, array: NDArray[Any]) -> None:
    """One array, in as many messages as it takes; the first one says what it is."""
    data = np.ascontiguousarray(array).tobytes()
    for start in range(0, max(1, len(data)), CHUNK_BYTES):
        part = wire.FetchReply.Array(
            name=name,
            dtype=array.dtype.name,
            shape=array.shape,
            data=data[start : start + CHUNK_BYTES],
        )
        await context.write(wire.FetchReply(arrays=[part]))


def member_of(message: wire.Member) -> PeerStatus:
    """From the wire."""
    return PeerStatus(**{name: getattr(message, name) for name in PeerStatus.__dataclass_fields__})


def message_of(member: PeerStatus) -> wire.Member:
    """For the wire."""
    return wire.Member(**{name: getattr(member, name) for name in PeerStatus.__dataclass_fields__})
