"""Client of one shard: its three streams, connected again whenever they end.

`ShardRouter` calls `insert`, `sample` and `update`, which queue work, and awaits `next_stored` and
`next_sample`, which return results in the order of the work. When a connection ends,
`take_unfinished` returns the work without a result.
"""

import asyncio
import logging
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import grpc.aio
import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from seedbed.numbers import Bounds, check_number, check_range
from seedbed.replay.client.pending_insert import PendingInsert
from seedbed.replay.client.sample_request import ShardRequest
from seedbed.replay.client.shard_stream import PREFIX, ShardStream
from seedbed.replay.codec import sequences_a_message, sequences_of, spec_message, unpack
from seedbed.replay.numbers import wrong_items
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc import channels
from seedbed.rpc.credentials import Credentials
from seedbed.rpc.hello import hello_metadata
from seedbed.rpc.reconnect import FATAL, describe, details_of
from seedbed.rpc.versions import OLDEST_REPLAY_PROTOCOL_VERSION, REPLAY_PROTOCOL_VERSION
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.v1 import replay_pb2 as wire

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
# Batches of priorities that wait for a shard.
MAX_UPDATES = 256
_ROUNDING = 1e-6  # of sums of priorities
_Reader = Callable[["ShardClient"], Coroutine[Any, Any, None]]


class ShardRefused(SeedbedError):
    """Refusal of this learner by a shard, for a reason that a new attempt does not change."""


class Drawn(NamedTuple):
    """Answer to a request for sequences.

    Attributes:
        request: What is answered.
        arrays: Arrays [n, ...] of `codec.sample_arrays`, valid until `release`; empty where the
            shard has nothing to sample.
        total_priority: Of the shard, when it sampled.
        release: Gives the memory of the arrays back. Event loop only.
    """

    request: ShardRequest
    arrays: dict[str, NDArray[Any]]
    total_priority: float
    release: Callable[[], None]


class ShardClient:
    """One shard. Used in the event loop only; other threads may read the attributes.

    Args:
        index: Index of the shard.
        address: `host:port` or `unix:PATH`.
        spec: Sizes of a sequence.
        exponent: α, which must be the shard's own.
        bounds: Largest magnitudes of rewards and float frames.
        credentials: Credentials of this process.
        reply_timeout_s: Longest wait for an answer before the connection is given up.

    Attributes:
        up: Whether the shard is connected.
        total_priority: Σ p^α of the shard, from its newest answer; 0 while it is not connected.
        state: The newest complete state of the shard.
        cause: Why the shard is not connected, in words.
        stale_updates: Priorities that the shard reported as too late.
        refused: Sequences of the shard whose numbers are not allowed.
        traffic: Bytes `sent` and `received`, over all connections.
    """

    def __init__(
        self,
        index: int,
        address: str,
        spec: SequenceSpec,
        exponent: float,
        bounds: Bounds,
        credentials: Credentials,
        reply_timeout_s: float,
    ) -> None:
        self.index, self.address = index, address
        self._spec, self._exponent, self._credentials = spec, exponent, credentials
        self._bounds, self._reply_timeout_s = bounds, reply_timeout_s
        self.up = False
        self.total_priority = 0.0
        self.state = wire.ShardState()
        self.cause = "not connected yet"
        self.stale_updates = self.refused = 0
        self.traffic: Counter[str] = Counter()
        # Whether the log has mentioned that the shard is away, before its first connection.
        self._warned = False
        self._reset_streams()

    def _reset_streams(self) -> None:
        stream = partial(ShardStream, spec=self._spec, traffic=self.traffic)
        self._inserts = stream("Insert", wire.InsertReply, PendingInsert.message)
        self._samples = stream("Sample", wire.SampleReply, ShardRequest.message)
        self._updates = stream("Prioritize", wire.PrioritizeReply, _numbered)
        self._streams = (self._inserts, self._samples, self._updates)
        # Answers with a total priority.
        self._answers = 0

    # --- work --------------------------------------------------------------------------------

    def insert(self, insert: PendingInsert) -> None:
        """Queue an insert. The router limits the bytes of what waits."""
        self._inserts.put(insert)

    def sample(self, request: ShardRequest) -> None:
        """Queue a request for sequences, as requests that take one message each."""
        for part in request.split(sequences_a_message(self._spec)):
            self._samples.put(part)

    def update(
        self, incarnation: int, keys: NDArray[np.int64], priority: NDArray[np.float32]
    ) -> None:
        """Queue new priorities. Where too many wait, the oldest are dropped.

        Args:
            incarnation: Incarnation of the shard that assigned the keys.
            keys: [N], the shard's own.
            priority: [N].
        """
        if self.up:
            message = wire.PrioritizeRequest(
                incarnation=incarnation, key=keys.tobytes(), priority=priority.tobytes()
            )
            self._updates.put(message)
            self._updates.drop_beyond(MAX_UPDATES)

    @property
    def busy(self) -> bool:
        """Return whether some work has no result yet."""
        return any(stream.unfinished for stream in self._streams)

    def take_unfinished(self) -> tuple[list[PendingInsert], list[ShardRequest]]:
        """Take back the work of a connection that has ended. Its priorities are lost."""
        if self.cause and (self.up or not self._warned):
            self._warned = True
            log.warning("replay shard %s is left out: %s", self.address, self.cause)
        self.up, self.total_priority = False, 0.0
        inserts, requests = list(self._inserts.unfinished), list(self._samples.unfinished)
        self._reset_streams()
        return inserts, requests

    # --- connection --------------------------------------------------------------------------

    async def run(
        self,
        on_up: Callable[[], None],
        *readers: _Reader,
    ) -> None:
        """Connect, send work and poll the shard until the connection ends; `cause` says why.

        Args:
            on_up: Called once the shard is up, before other work can come.
            readers: Begun after that; await `next_stored` and `next_sample`.

        Raises:
            ShardRefused: The shard refuses this learner.
        """
        try:
            async with channels.aio_channel(self.address, self._credentials) as channel:
                try:
                    await self._open_streams(channel)
                    on_up()
                    await self._work(*(reader(self) for reader in readers))
                finally:
                    for stream in self._streams:
                        stream.close()
        except grpc.aio.AioRpcError as error:
            self.cause = describe(error)
            if error.code() in FATAL:
                raise ShardRefused(
                    ExitCode.REFUSED_BY_REPLAY,
                    f"the replay shard {self.address} refused this learner: {details_of(error)}",
                ) from error
        except TimeoutError:
            self.cause = f"no answer within {self._reply_timeout_s:g} s"
        except (ConnectionError, DecodeError, ValueError, SeedbedError) as error:
            self.cause = str(error)

    async def _open_streams(self, channel: grpc.aio.Channel) -> None:
        hello = wire.ReplayHello(
            protocol_version=REPLAY_PROTOCOL_VERSION,
            oldest_protocol_version=OLDEST_REPLAY_PROTOCOL_VERSION,
            learner=f"{socket.gethostname()}/{os.getpid()}",
            spec=spec_message(self._spec),
            priority_exponent=self._exponent,
            max_abs_reward=self._bounds.reward,
            max_abs_observation=self._bounds.observation,
        )
        metadata = hello_metadata(hello, self._credentials)
        async with asyncio.timeout(self._reply_timeout_s):
            self.state = await self._inserts.open(self.address, channel, metadata)
            self._check_state(self.state)
            for stream in (self._samples, self._updates):
                state = await stream.open(self.address, channel, metadata)
                self._check_state(state)
                self.state = state
        self._get_state = channel.unary_unary(
            f"{PREFIX}GetState",
            request_serializer=wire.GetStateRequest.SerializeToString,
            response_deserializer=wire.ShardState.FromString,
        )
        size, capacity = self.state.size, self.state.capacity
        log.info("replay shard %s: %d of %d sequences", self.address, size, capacity)
        self.up, self.cause, self.total_priority = True, "", self.state.total_priority

    def _check_state(self, state: wire.ShardState) -> None:
        """Check a state of the shard: its numbers, and that it is of the same process."""
        check_number("total_priority", state.total_priority)
        if state.incarnation != self.state.incarnation:
            raise ConnectionError("it was started again")

    async def _work(self, *readers: Coroutine[Any, Any, None]) -> None:
        """Run until one part of the connection fails, and raise its error."""
        senders = (stream.send() for stream in self._streams)
        parts = (*senders, self._read_updates(), self._poll(), *readers)
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # A fatal status comes first, because it is why the other parts failed.
            for stream in self._streams:
                await stream.raise_if_refused()
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _on_answer(self, total_priority: float, sampleable: int) -> None:
        check_number("total_priority", total_priority)
        self._answers += 1
        self.total_priority, self.state.sampleable = total_priority, sampleable

    # --- results -----------------------------------------------------------------------------

    async def next_stored(self) -> PendingInsert:
        """Wait until the shard has stored the oldest insert, and return the insert."""
        reply = await self._inserts.receive_message()
        due = self._inserts.finished
        if reply.sequence != due or not self._inserts.unfinished:
            raise ConnectionError(f"stored {reply.sequence}, and {due} is the next")
        self._on_answer(reply.total_priority, reply.sampleable)
        stored: PendingInsert = self._inserts.finish()
        return stored

    async def next_sample(self) -> Drawn:
        """Wait for the answer to the oldest request."""
        answer = await self._samples.receive()
        reply, payload = unpack(wire.SampleReply, answer.data)
        # Answers come in order; the number of the first request is 1.
        if reply.request != self._samples.finished + 1 or not self._samples.unfinished:
            raise ConnectionError(f"an answer to request {reply.request}, which was not made")
        wanted, count = len(self._samples.unfinished[0].places), reply.sequences
        if count not in (0, wanted):
            raise ConnectionError(f"{count} sequences for {wanted}")
        arrays = sequences_of(self._spec, reply, payload) if count else {}
        self._on_answer(reply.total_priority, reply.sampleable)
        if arrays:
            largest = reply.total_priority * (1 + _ROUNDING)
            check_range("scaled_priority", arrays["scaled_priority"], 0.0, largest)
            check_range("age", arrays["age"], 0.0, sys.float_info.max)
        return Drawn(self._samples.finish(), arrays, reply.total_priority, answer.release)

    def wrong(self, arrays: dict[str, NDArray[Any]]) -> list[int]:
        """Return which sequences of an answer have numbers that are not allowed. Any thread.

        A shard judges what it stores. It may be another program, or have bounds of its own.

        Args:
            arrays: [n, ...], as of `Drawn`.
        """
        items = np.arange(len(arrays["version"]))
        return wrong_items(self._spec, arrays, items, self._bounds)

    async def _read_updates(self) -> None:
        while True:
            reply = await self._updates.receive_message()
            if not self._updates.unfinished:
                raise ConnectionError("an answer to priorities that were not sent")
            self._updates.finish()
            self.stale_updates += reply.stale
            self._on_answer(reply.total_priority, self.state.sampleable)

    # --- polling -----------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Ask for the shard's state, and fail when an answer is overdue."""
        while True:
            await self.update_state()
            now = time.monotonic()
            waited = [now - stream.since for stream in self._streams if stream.unfinished]
            if max(waited, default=0.0) > self._reply_timeout_s:
                raise ConnectionError(f"no answer for {max(waited):.0f} s")
            await asyncio.sleep(POLL_INTERVAL_S)

    async def update_state(self) -> None:
        """Ask for the shard's state, and wait for it. The shard is up.

        Raises:
            ConnectionError: The shard was started again.
            grpc.aio.AioRpcError: The connection has failed.
        """
        answers = self._answers
        state = await self._get_state(
            wire.GetStateRequest(),
            metadata=self._credentials.metadata(),
            timeout=self._reply_timeout_s,
        )
        self._check_state(state)
        if self._answers != answers:
            # Answers on the streams may be newer than this one.
            state.total_priority, state.sampleable = self.total_priority, self.state.sampleable
        self.total_priority, self.state = state.total_priority, state


def _numbered(message: wire.PrioritizeRequest, number: int) -> list[bytes]:
    message.sequence = number
    return [message.SerializeToString()]
