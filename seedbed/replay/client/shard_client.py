"""The learner's end of one shard: its three streams, for ever connected anew."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import grpc
import grpc.aio
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from seedbed.replay.client.sample_request import ShardRequest
from seedbed.replay.codec import insert_request, sequences_of, spec_message, unpack
from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.rpc import channels
from seedbed.rpc.tls import Tls
from seedbed.rpc.versions import OLDEST_REPLAY_PROTOCOL_VERSION, REPLAY_PROTOCOL_VERSION
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.v1 import replay_pb2 as wire

log = logging.getLogger(__name__)

# What a shard says when trying again cannot help.
FATAL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION,
         grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED)  # fmt: skip
FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 5.0
STATE_EVERY_S = 1.0
UPDATES = 256  # batches of priorities that wait for a shard
_PREFIX = "/seedbed.v1.Replay/"


class ShardSilent(Exception):
    """Nothing came from the shard in time, or it ended a stream."""


@dataclass(eq=False)
class PendingInsert:
    """Some columns of a chunk, on their way to a shard."""

    chunk: SequenceChunk
    which: slice
    stream_id: int  # of these columns
    home: int  # the shard that they belong to
    bytes: int
    since: float = field(default_factory=time.monotonic)

    @property
    def sequences(self) -> int:
        """How many columns."""
        return int(self.which.stop - self.which.start)


class Update(NamedTuple):
    """New priorities for sequences of a shard."""

    incarnation: int  # of the shard when it gave the keys
    keys: NDArray[np.int64]  # [N], the shard's own
    priority: NDArray[np.float32]  # [N]


class Owner(Protocol):
    """What a link tells whoever has it. All in the event loop."""

    def on_up(self, link: ShardClient) -> None:
        """It can be used."""

    def on_down(
        self, link: ShardClient, pieces: list[PendingInsert], parts: list[ShardRequest]
    ) -> None:
        """It cannot, and these are left over."""

    def on_refused(self, link: ShardClient, error: SeedbedError) -> None:
        """Nor will it ever."""

    def on_stored(self, link: ShardClient, piece: PendingInsert) -> None:
        """A piece is safe."""

    async def on_drawn(
        self, link: ShardClient, part: ShardRequest, arrays: dict[str, NDArray[Any]], mass: float
    ) -> None:
        """The first sequences [n, ...] of what is missing of a part have come."""

    def on_empty(self, link: ShardClient, part: ShardRequest) -> None:
        """The shard has nothing to draw for what is missing of a part."""


class ShardClient:
    """One shard. Event loop only, but for what is read.

    Attributes:
        up: whether it is connected.
        mass: Σ p^α of the shard, from its newest answer; 0 while it is not connected.
        state: the newest whole answer of the shard.
        cause: why it is not connected, in words.
        stale_updates: priorities that the shard said came too late.
        lost_updates: priorities that were not delivered.
        looks: how often the shard has said how it is.
    """

    def __init__(
        self,
        index: int,
        address: str,
        spec: SequenceSpec,
        exponent: float,
        owner: Owner,
        tls: Tls | None,
        reply_timeout_s: float,
    ) -> None:
        self.index, self.address = index, address
        self._spec, self._exponent, self._owner, self._tls = spec, exponent, owner, tls
        self._reply_timeout_s = reply_timeout_s
        self.up = False
        self.total_priority = 0.0
        self.state = wire.ShardState()
        self.cause = "not connected yet"
        self.stale_updates = self.lost_updates = 0
        self._said = False  # that it is away, before it ever came up
        self.looks = 0
        self._look = asyncio.Event()
        self._closing = False
        self._forget()

    def _forget(self) -> None:
        """Queues of a connection."""
        self._pieces: asyncio.Queue[PendingInsert] = asyncio.Queue()  # the owner bounds its bytes
        self._unstored: deque[PendingInsert] = deque()  # sent
        self._parts: asyncio.Queue[tuple[int, ShardRequest]] = asyncio.Queue()  # batches bound them
        self._undrawn: dict[int, ShardRequest] = {}  # asked for or about to be, by request
        self._updates: asyncio.Queue[Update] = asyncio.Queue(UPDATES)
        self._unset: deque[tuple[float, int]] = deque()  # since when, how many
        self._request = 0
        self._answers = 0  # that said how large the mass is

    # --- what the owner gives --------------------------------------------------------------

    def insert(self, piece: PendingInsert) -> None:
        """Send a piece."""
        piece.since = time.monotonic()
        self._pieces.put_nowait(piece)

    def draw(self, part: ShardRequest) -> None:
        """Ask for the sequences of a part."""
        part.since = time.monotonic()
        self._request += 1
        self._undrawn[self._request] = part
        self._parts.put_nowait((self._request, part))

    def update(self, update: Update) -> None:
        """Send priorities. Where too many wait the oldest are lost, and counted."""
        if not self.up:
            self.lost_updates += len(update.keys)
            return
        if self._updates.full():
            self.lost_updates += len(self._updates.get_nowait().keys)
        self._updates.put_nowait(update)

    @property
    def busy(self) -> bool:
        """Whether something that it was given is not done yet."""
        waiting = (self._unstored, self._undrawn, self._unset)
        queues = (self._pieces, self._parts, self._updates)
        return any(waiting) or any(not queue.empty() for queue in queues)

    # --- the connection --------------------------------------------------------------------

    def look(self) -> None:
        """Ask the shard how it is, now. `looks` counts the answers."""
        self._look.set()

    async def run(self) -> None:
        """Connect, again and again, until cancelled or refused."""
        pause = FIRST_RETRY_S
        while True:
            started = time.monotonic()
            try:
                await self._connect()
            except grpc.aio.AioRpcError as error:
                self.cause = f"{error.code().name}: {error.details()}"
                if error.code() in FATAL:
                    self._down()
                    self._owner.on_refused(self, self._refusal(error))
                    return
            except (ShardSilent, DecodeError, ValueError, SeedbedError) as error:
                self.cause = str(error)
            finally:
                self._down()
            if time.monotonic() - started > LONGEST_RETRY_S:
                pause = FIRST_RETRY_S
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_RETRY_S)

    def _refusal(self, error: grpc.aio.AioRpcError) -> SeedbedError:
        return SeedbedError(
            ExitCode.REFUSED_BY_REPLAY,
            f"the replay shard {self.address} refused this learner: {error.details()}",
        )

    def _down(self) -> None:
        """Give back what is left over."""
        if self.cause and (self.up or not self._said):
            self._said = True
            log.warning("replay shard %s is left out: %s", self.address, self.cause)
        self.up, self.total_priority = False, 0.0
        pieces = [*self._unstored, *_drained(self._pieces)]
        parts = list(self._undrawn.values())
        self.lost_updates += sum(count for _, count in self._unset)
        self.lost_updates += sum(len(update.keys) for update in _drained(self._updates))
        self._forget()
        if pieces or parts:
            self._owner.on_down(self, pieces, parts)

    async def _connect(self) -> None:
        """One connection, until something of it fails."""
        channel = channels.aio_channel(self.address, self._tls)
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                insert = await self._open(channel, "Insert", wire.InsertRequest, wire.InsertReply)
                sample = await self._open(channel, "Sample", wire.SampleRequest, wire.SampleReply)
                prioritize = await self._open(
                    channel, "Prioritize", wire.PrioritizeRequest, wire.PrioritizeReply
                )
            log.info("replay shard %s: %d of %d sequences", self.address, self.state.size,
                     self.state.capacity)  # fmt: skip
            self.up, self.cause, self.total_priority = True, "", self.state.total_priority
            parts: list[Callable[[], Awaitable[None]]] = [
                lambda: self._send_pieces(insert),
                lambda: self._read_stored(insert),
                lambda: self._send_requests(sample),
                lambda: self._read_drawn(sample),
                lambda: self._send_updates(prioritize),
                lambda: self._read_set(prioritize),
                lambda: self._watch(channel),
            ]
            tasks = [asyncio.ensure_future(part()) for part in parts]
            self._owner.on_up(self)
            await _first_failure(tasks, [insert, sample, prioritize])
        except TimeoutError:
            raise ShardSilent(f"no answer within {self._reply_timeout_s:g} s") from None
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
            await channel.close()

    async def _open(self, channel: grpc.aio.Channel, name: str, request: Any, reply: Any) -> Any:
        call: Any = channel.stream_stream(f"{_PREFIX}{name}")()
        hello = wire.ReplayHello(
            protocol_version=REPLAY_PROTOCOL_VERSION,
            oldest_protocol_version=OLDEST_REPLAY_PROTOCOL_VERSION,
            learner=f"{socket.gethostname()}/{os.getpid()}",
            spec=spec_message(self._spec),
            priority_exponent=self._exponent,
        )
        await _write(call, request(hello=hello).SerializeToString())
        message = unpack(reply, await _read(call))[0]
        if not message.HasField("welcome"):
            raise ShardSilent(f"{name} was not answered with welcome")
        if name != "Insert":
            self._check_life(message.welcome.state)
        self.state = message.welcome.state
        return call

    def _check_life(self, state: wire.ShardState) -> None:
        if state.incarnation != self.state.incarnation:
            raise ShardSilent("it was started again")

    def _heard(self, mass: float, sampleable: int) -> None:
        self._answers += 1
        self.total_priority, self.state.sampleable = mass, sampleable

    # --- insertion -------------------------------------------------------------------------

    async def _send_pieces(self, call: Any) -> None:
        sequence = 0
        while True:
            piece = await self._pieces.get()
            piece.since = time.monotonic()
            self._unstored.append(piece)
            await _write(
                call,
                insert_request(self._spec, piece.chunk, piece.which, piece.stream_id, sequence),
            )
            sequence += 1

    async def _read_stored(self, call: Any) -> None:
        sequence = 0
        while True:
            reply = wire.InsertReply.FromString(await _read(call))
            if reply.sequence != sequence or not self._unstored:
                raise ShardSilent(f"stored {reply.sequence}, and {sequence} is the next")
            sequence += 1
            self._heard(reply.total_priority, reply.sampleable)
            self._owner.on_stored(self, self._unstored.popleft())
            if self._unstored:  # it had to wait for the one before
                self._unstored[0].since = time.monotonic()

    # --- sampling --------------------------------------------------------------------------

    async def _send_requests(self, call: Any) -> None:
        while True:
            request, part = await self._parts.get()
            message = wire.SampleRequest(request=request, uniform=part.uniform.tobytes())
            await _write(call, message.SerializeToString())

    async def _read_drawn(self, call: Any) -> None:
        """Take sequences. While some are put in their place the next ones come in."""
        reading = asyncio.ensure_future(_read(call))
        try:
            while True:
                data = await reading
                reading = asyncio.ensure_future(_read(call))
                await self._take_drawn(data)
                del data
        finally:
            reading.cancel()

    async def _take_drawn(self, data: bytes) -> None:
        reply, payload = unpack(wire.SampleReply, data)
        part = self._undrawn.get(reply.request)
        if part is None:
            raise ShardSilent(f"an answer to request {reply.request}, which nobody made")
        self._heard(reply.total_priority, reply.sampleable)
        now = time.monotonic()
        for other in self._undrawn.values():  # it comes in order
            other.since = now
        if not reply.sequences:
            del self._undrawn[reply.request]
            self._owner.on_empty(self, part)
            return
        arrays = sequences_of(self._spec, reply, payload)
        if reply.sequences > len(part.columns):
            raise ShardSilent(f"{reply.sequences} sequences for {len(part.columns)}")
        left = part.rest(reply.sequences)
        if len(left.columns):
            self._undrawn[reply.request] = left
        else:
            del self._undrawn[reply.request]
        await self._owner.on_drawn(self, part, arrays, reply.total_priority)

    # --- priorities ------------------------------------------------------------------------

    async def _send_updates(self, call: Any) -> None:
        sequence = 0
        while True:
            incarnation, keys, priority = await self._updates.get()
            self._unset.append((time.monotonic(), len(keys)))
            message = wire.PrioritizeRequest(
                sequence=sequence,
                incarnation=incarnation,
                key=keys.tobytes(),
                priority=priority.tobytes(),
            )
            await _write(call, message.SerializeToString())
            sequence += 1

    async def _read_set(self, call: Any) -> None:
        while True:
            reply = wire.PrioritizeReply.FromString(await _read(call))
            if not self._unset:
                raise ShardSilent("priorities are set that nobody gave")
            self._unset.popleft()
            self.stale_updates += reply.stale
            self._heard(reply.total_priority, self.state.sampleable)

    # --- watching --------------------------------------------------------------------------

    async def _watch(self, channel: grpc.aio.Channel) -> None:
        """Ask how the shard is, and give it up when it owes an answer for too long."""
        ask = channel.unary_unary(
            f"{_PREFIX}GetState",
            request_serializer=wire.GetStateRequest.SerializeToString,
            response_deserializer=wire.ShardState.FromString,
        )
        while True:
            answers = self._answers
            state = await ask(wire.GetStateRequest(), timeout=self._reply_timeout_s)
            self._check_life(state)
            if self._answers != answers:  # what the streams have said may be newer
                state.total_priority, state.sampleable = self.total_priority, self.state.sampleable
            self.total_priority, self.state = state.total_priority, state
            since = [piece.since for piece in list(self._unstored)[:1]]
            since += [part.since for part in self._undrawn.values()]
            since += [asked for asked, _ in list(self._unset)[:1]]
            waited = time.monotonic() - min(since, default=time.monotonic())
            if waited > self._reply_timeout_s:
                raise ShardSilent(f"no answer for {waited:.0f} s")
            self.looks += 1
            self._look.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), STATE_EVERY_S)


def _drained(queue: asyncio.Queue[Any]) -> list[Any]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


async def _write(call: Any, data: bytes) -> None:
    # The stream may have ended meanwhile: the next read says how.
    with contextlib.suppress(asyncio.InvalidStateError):
        await call.write(data)


async def _read(call: Any) -> bytes:
    data: Any = await call.read()
    if data is grpc.aio.EOF:
        code = await call.code()
        if code is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                code, grpc.aio.Metadata(), grpc.aio.Metadata(), await call.details()
            )
        raise ShardSilent("it ended a stream")
    return bytes(data)


async def _first_failure(tasks: list[asyncio.Task[None]], calls: list[Any]) -> None:
    """Raise what the first task to fail failed of; what the shard said of it comes first."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    failures = [task.exception() for task in done]
    for call in calls:
        if call.done() and await call.code() in FATAL:
            failures.insert(
                0,
                grpc.aio.AioRpcError(
                    await call.code(),
                    grpc.aio.Metadata(),
                    grpc.aio.Metadata(),
                    await call.details(),
                ),
            )
    raise failures[0] or ShardSilent("a part of the connection ended")
