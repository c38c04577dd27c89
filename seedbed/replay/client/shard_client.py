"""Client of one shard: its three streams, connected again whenever they end.

`ShardedReplay` calls `insert`, `sample` and `update`, which queue work, and awaits `next_stored`
and `next_sample`, which return results in the order of the work. When a connection ends,
`take_unfinished` returns the work without a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from typing import Any, NamedTuple

import grpc.aio
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from seedbed.replay.client.pending_insert import PendingInsert
from seedbed.replay.client.sample_request import ShardRequest
from seedbed.replay.codec import insert_request, sequences_of, spec_message, unpack
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc import channels
from seedbed.rpc.reconnect import FATAL, describe
from seedbed.rpc.streams import read, write
from seedbed.rpc.tls import Tls
from seedbed.rpc.versions import OLDEST_REPLAY_PROTOCOL_VERSION, REPLAY_PROTOCOL_VERSION
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.v1 import replay_pb2 as wire

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
# Batches of priorities that wait for a shard.
MAX_UPDATES = 256
_PREFIX = "/seedbed.v1.Replay/"
_STREAMS = (
    ("Insert", wire.InsertRequest, wire.InsertReply),
    ("Sample", wire.SampleRequest, wire.SampleReply),
    ("Prioritize", wire.PrioritizeRequest, wire.PrioritizeReply),
)


class ShardRefused(SeedbedError):
    """Refusal of this learner by a shard, for a reason that a new attempt does not change."""


class PriorityUpdate(NamedTuple):
    """New priorities for sequences of a shard."""

    incarnation: int  # of the shard, which assigned the keys
    keys: NDArray[np.int64]  # [N], the shard's own
    priority: NDArray[np.float32]  # [N]


class ShardSample(NamedTuple):
    """Answer of a shard to a request, or to a part of it."""

    request: ShardRequest  # what is answered
    arrays: dict[str, NDArray[Any]] | None  # [n, ...]; None: the shard has nothing to sample
    total_priority: float  # of the shard when it sampled


class ShardClient:
    """One shard. Used in the event loop only; other threads may read the attributes.

    Args:
        index: Index of the shard.
        address: `host:port` or `unix:PATH`.
        spec: Sizes of a sequence.
        exponent: α, which must be the shard's own.
        tls: The shard needs a certificate of this authority.
        reply_timeout_s: Longest wait for an answer before the connection is given up.

    Attributes:
        up: Whether the shard is connected.
        total_priority: Σ p^α of the shard, from its newest answer; 0 while it is not connected.
        state: The newest complete state of the shard.
        cause: Why the shard is not connected, in words.
        stale_updates: Priorities that the shard reported as too late.
        lost_updates: Priorities that were not delivered.
        polls: Answers to `GetState`.
    """

    def __init__(
        self,
        index: int,
        address: str,
        spec: SequenceSpec,
        exponent: float,
        tls: Tls | None,
        reply_timeout_s: float,
    ) -> None:
        self.index, self.address = index, address
        self._spec, self._exponent, self._tls = spec, exponent, tls
        self._reply_timeout_s = reply_timeout_s
        self.up = False
        self.total_priority = 0.0
        self.state = wire.ShardState()
        self.cause = "not connected yet"
        self.stale_updates = self.lost_updates = 0
        self.polls = 0
        self._poll_due = asyncio.Event()
        # Whether the log has mentioned that the shard is away, before its first connection.
        self._warned = False
        # The next answer of the stream Sample, which is read ahead.
        self._reading: asyncio.Future[Any] | None = None
        self._reset_queues()

    def _reset_queues(self) -> None:
        # Inserts to send, whose bytes the router limits, and those without an answer.
        self._inserts: asyncio.Queue[PendingInsert] = asyncio.Queue()
        self._unstored: deque[PendingInsert] = deque()
        self._stored = 0
        # Requests to send, and those without their last answer, by number.
        self._requests: asyncio.Queue[tuple[int, ShardRequest]] = asyncio.Queue()
        self._unsampled: dict[int, ShardRequest] = {}
        self._request_number = 0
        # Priorities to send; since when, and how many, are without an answer.
        self._updates: asyncio.Queue[PriorityUpdate] = asyncio.Queue(MAX_UPDATES)
        self._unset: deque[tuple[float, int]] = deque()
        # Answers with a total priority.
        self._answers = 0

    # --- work --------------------------------------------------------------------------------

    def insert(self, insert: PendingInsert) -> None:
        """Queue an insert."""
        insert.since = time.monotonic()
        self._inserts.put_nowait(insert)

    def sample(self, request: ShardRequest) -> None:
        """Queue a request for sequences."""
        request.since = time.monotonic()
        self._request_number += 1
        self._unsampled[self._request_number] = request
        self._requests.put_nowait((self._request_number, request))

    def update(self, update: PriorityUpdate) -> None:
        """Queue new priorities. Where too many wait, the oldest are dropped and counted."""
        if not self.up:
            self.lost_updates += len(update.keys)
            return
        if self._updates.full():
            self.lost_updates += len(self._updates.get_nowait().keys)
        self._updates.put_nowait(update)

    @property
    def busy(self) -> bool:
        """Return whether some work has no result yet."""
        waiting = (self._unstored, self._unsampled, self._unset)
        queues = (self._inserts, self._requests, self._updates)
        return any(waiting) or any(not queue.empty() for queue in queues)

    def poll_now(self) -> None:
        """Ask for the shard's state at once. `polls` counts the answers."""
        self._poll_due.set()

    def take_unfinished(self) -> tuple[list[PendingInsert], list[ShardRequest]]:
        """Take back the work of a connection that has ended. Counts its priorities as lost."""
        if self.cause and (self.up or not self._warned):
            self._warned = True
            log.warning("replay shard %s is left out: %s", self.address, self.cause)
        self.up, self.total_priority = False, 0.0
        inserts = [*self._unstored, *_drain(self._inserts)]
        requests = list(self._unsampled.values())
        self.lost_updates += sum(count for _, count in self._unset)
        self.lost_updates += sum(len(update.keys) for update in _drain(self._updates))
        self._reset_queues()
        return inserts, requests

    # --- connection --------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[None]:
        """Connect for as long as the block runs.

        Raises:
            ConnectionError: The connection failed, in the block or before; `cause` says why.
            ShardRefused: The shard refuses this learner.
        """
        try:
            self._channel = channels.aio_channel(self.address, self._tls)
            try:
                await self._open_streams()
                yield
            finally:
                self._cancel_reading()
                await self._channel.close()
        except grpc.aio.AioRpcError as error:
            self.cause = describe(error)
            if error.code() in FATAL:
                raise ShardRefused(
                    ExitCode.REFUSED_BY_REPLAY,
                    f"the replay shard {self.address} refused this learner: {error.details()}",
                ) from error
            raise ConnectionError(self.cause) from error
        except (ConnectionError, TimeoutError, DecodeError, ValueError, SeedbedError) as error:
            self.cause = str(error)
            raise ConnectionError(self.cause) from error

    def _cancel_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = None

    async def _open_streams(self) -> None:
        try:
            async with asyncio.timeout(self._reply_timeout_s):
                self._calls = [await self._open(*stream) for stream in _STREAMS]
        except TimeoutError:
            raise ConnectionError(f"no answer within {self._reply_timeout_s:g} s") from None
        self._insert_call, self._sample_call, self._prioritize_call = self._calls
        size, capacity = self.state.size, self.state.capacity
        log.info("replay shard %s: %d of %d sequences", self.address, size, capacity)
        self.up, self.cause, self.total_priority = True, "", self.state.total_priority

    async def _open(self, name: str, request: Any, reply: Any) -> Any:
        call: Any = self._channel.stream_stream(f"{_PREFIX}{name}")()
        hello = wire.ReplayHello(
            protocol_version=REPLAY_PROTOCOL_VERSION,
            oldest_protocol_version=OLDEST_REPLAY_PROTOCOL_VERSION,
            learner=f"{socket.gethostname()}/{os.getpid()}",
            spec=spec_message(self._spec),
            priority_exponent=self._exponent,
        )
        await write(call, request(hello=hello).SerializeToString())
        message = unpack(reply, await read(call))[0]
        if not message.HasField("welcome"):
            raise ConnectionError(f"{name} was not answered with welcome")
        if name != "Insert":
            self._check_incarnation(message.welcome.state)
        self.state = message.welcome.state
        return call

    def _check_incarnation(self, state: wire.ShardState) -> None:
        if state.incarnation != self.state.incarnation:
            raise ConnectionError("it was started again")

    async def run(self, *readers: Coroutine[Any, Any, None]) -> None:
        """Send work and poll the shard until the connection fails, and raise its error.

        Args:
            readers: Coroutines that await `next_stored` and `next_sample`; cancelled at the end.
        """
        senders = (self._send_inserts(), self._send_requests(), self._send_updates())
        parts = (*senders, self._read_updates(), self._poll(), *readers)
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # A fatal status comes first, because it is why the other parts failed.
            for call in self._calls:
                if call.done() and await call.code() in FATAL:
                    await call.read()
            for task in done:
                task.result()
            raise ConnectionError("a part of the connection ended")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _on_answer(self, total_priority: float, sampleable: int) -> None:
        self._answers += 1
        self.total_priority, self.state.sampleable = total_priority, sampleable

    # --- insertion ---------------------------------------------------------------------------

    async def _send_inserts(self) -> None:
        sequence = 0
        while True:
            insert = await self._inserts.get()
            insert.since = time.monotonic()
            self._unstored.append(insert)
            chunk, envs, stream_id = insert.chunk, insert.envs, insert.stream_id
            message = insert_request(self._spec, chunk, envs, stream_id, sequence)
            await write(self._insert_call, message)
            del message, chunk
            sequence += 1

    async def next_stored(self) -> PendingInsert:
        """Wait until the shard has stored the oldest insert, and return the insert."""
        reply = wire.InsertReply.FromString(await read(self._insert_call))
        if reply.sequence != self._stored or not self._unstored:
            raise ConnectionError(f"stored {reply.sequence}, and {self._stored} is the next")
        self._stored += 1
        self._on_answer(reply.total_priority, reply.sampleable)
        stored = self._unstored.popleft()
        if self._unstored:
            # Its answer had to wait for this one.
            self._unstored[0].since = time.monotonic()
        return stored

    # --- sampling ----------------------------------------------------------------------------

    async def _send_requests(self) -> None:
        while True:
            number, request = await self._requests.get()
            message = wire.SampleRequest(request=number, uniform=request.uniform.tobytes())
            await write(self._sample_call, message.SerializeToString())

    async def next_sample(self) -> ShardSample:
        """Wait for the next sequences. Reads one message ahead, while the caller copies."""
        reading = self._reading or asyncio.ensure_future(read(self._sample_call))
        data = await reading
        self._reading = asyncio.ensure_future(read(self._sample_call))
        reply, payload = unpack(wire.SampleReply, data)
        request = self._unsampled.get(reply.request)
        if request is None:
            raise ConnectionError(f"an answer to request {reply.request}, which was not made")
        self._on_answer(reply.total_priority, reply.sampleable)
        # Answers come in order, so the other requests had to wait for this one.
        now = time.monotonic()
        for other in self._unsampled.values():
            other.since = now
        if not reply.sequences:
            del self._unsampled[reply.request]
            return ShardSample(request, None, reply.total_priority)
        arrays = sequences_of(self._spec, reply, payload)
        if reply.sequences > len(request.places):
            raise ConnectionError(f"{reply.sequences} sequences for {len(request.places)}")
        answered, rest = request.split(reply.sequences)
        if len(rest.places):
            self._unsampled[reply.request] = rest
        else:
            del self._unsampled[reply.request]
        return ShardSample(answered, arrays, reply.total_priority)

    # --- priorities --------------------------------------------------------------------------

    async def _send_updates(self) -> None:
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
            await write(self._prioritize_call, message.SerializeToString())
            sequence += 1

    async def _read_updates(self) -> None:
        while True:
            reply = wire.PrioritizeReply.FromString(await read(self._prioritize_call))
            if not self._unset:
                raise ConnectionError("an answer to priorities that were not sent")
            self._unset.popleft()
            self.stale_updates += reply.stale
            self._on_answer(reply.total_priority, self.state.sampleable)

    # --- polling -----------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Ask for the shard's state, and fail when an answer is overdue."""
        ask = self._channel.unary_unary(
            f"{_PREFIX}GetState",
            request_serializer=wire.GetStateRequest.SerializeToString,
            response_deserializer=wire.ShardState.FromString,
        )
        while True:
            answers = self._answers
            state = await ask(wire.GetStateRequest(), timeout=self._reply_timeout_s)
            self._check_incarnation(state)
            if self._answers != answers:
                # Answers on the streams may be newer than this one.
                state.total_priority = self.total_priority
                state.sampleable = self.state.sampleable
            self.total_priority, self.state = state.total_priority, state
            since = [insert.since for insert in list(self._unstored)[:1]]
            since += [request.since for request in self._unsampled.values()]
            since += [sent for sent, _ in list(self._unset)[:1]]
            waited = time.monotonic() - min(since, default=time.monotonic())
            if waited > self._reply_timeout_s:
                raise ConnectionError(f"no answer for {waited:.0f} s")
            self.polls += 1
            self._poll_due.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._poll_due.wait(), POLL_INTERVAL_S)


def _drain(queue: asyncio.Queue[Any]) -> list[Any]:
    return [queue.get_nowait() for _ in range(queue.qsize())]
