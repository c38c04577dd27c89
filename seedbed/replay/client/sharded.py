"""Replay on any number of shards over gRPC, as if they were one replay buffer."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.numbers import DEFAULT_BOUNDS, MAX_PRIORITY, Bounds
from seedbed.replay.buffer import check_chunk, check_priorities
from seedbed.replay.client.pending_insert import ChunkSplitter
from seedbed.replay.client.sample_request import FramePool, SampleRequest
from seedbed.replay.client.shard_client import ShardClient
from seedbed.replay.client.shard_router import InsertWindow, ShardRouter
from seedbed.replay.codec import MESSAGE_BYTES, chunk_bytes
from seedbed.replay.replay_buffer import ReplayBuffer, ReplayStats
from seedbed.replay.sequence import Sample, SequenceChunk, SequenceSpec
from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError

log = logging.getLogger(__name__)

# All event loops of a process share gRPC's queue: the last events of this one come within this.
_LAST_EVENTS_S = 0.2
# Batches whose memory is kept for the next ones.
_KEPT_BATCHES = 8
# Longest wait of `close` for the work under way, and for the thread.
_CLOSE_S = 4.0


class ShardedReplay(ReplayBuffer):
    """Replay on shards. Any thread may call the methods; an event loop in a thread does the work.

    Inserts. The environments of a chunk go to shards by the chunk's stream and their place in it,
    always the same ones, so that a shard has all the frames of its sequences. While a shard is
    away its part goes to the next shard, as a new stream. Inserts are delivered at least once: an
    insert that a failed shard has not acknowledged is sent to another shard.

    Samples. A number u of a request chooses a shard in proportion to the shards' total priorities,
    and then a sequence there, so that a sequence of priority p is drawn with probability
    p^α / Σ p^α over all shards. The total priorities are those of the shards' newest answers: of
    any answer on any stream, and at least every second. A shard samples from what it holds when
    the request arrives, so with updates under way the distribution between the shards is that of
    a few milliseconds ago. `Sample.probability` is exact even so: the probability with which the
    shard was chosen, times the probability within the shard when it sampled.

    Control flow. The methods pass work to the `ShardRouter`, which gives it to one `ShardClient` a
    shard, takes the results, and reroutes the work of a shard that fails.

    Args:
        spec: Sizes of a sequence.
        addresses: `host:port` or `unix:PATH` of each shard, one or more, each once. The order
            decides which shard stores which environments.
        exponent: α, which must be the shards' own.
        bounds: Largest magnitudes of rewards and float frames.
        credentials: credentials of this process.
        timeout_s: Longest time to go on without any shard.
        reply_timeout_s: Longest wait for an answer of a shard before it is left out.
        window_bytes: Bytes of chunks under way above which `add` waits.

    Attributes:
        clients: One client a shard.
        window: Bytes of chunks under way.
        router: Work of all shards, and what became of it.

    Raises:
        SeedbedError: CONFIG: a sequence is too large.
    """

    def __init__(
        self,
        spec: SequenceSpec,
        addresses: Sequence[str],
        exponent: float,
        *,
        bounds: Bounds = DEFAULT_BOUNDS,
        credentials: Credentials = PLAIN,
        timeout_s: float = 600.0,
        reply_timeout_s: float = 15.0,
        window_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        if chunk_bytes(spec) > channels.MAX_MESSAGE_BYTES - MESSAGE_BYTES:
            raise ConfigError(
                f"a sequence of {chunk_bytes(spec)} bytes does not fit into a message of "
                f"{channels.MAX_MESSAGE_BYTES}: fewer steps, or another storage"
            )
        self.spec = spec
        self._splitter = ChunkSplitter(spec, len(addresses))
        self._frames = FramePool(_KEPT_BATCHES)
        self.clients = [
            ShardClient(index, address, spec, exponent, bounds, credentials, reply_timeout_s)
            for index, address in enumerate(addresses)
        ]
        self.window = InsertWindow(window_bytes)
        self.router = ShardRouter(self.clients, self.window, timeout_s, spec.predecessors)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay-shards", daemon=True)
        self._thread.start()
        self._started.wait()

    # --- the learner's side ------------------------------------------------------------------

    @override
    def can_insert(self) -> bool:
        self._check_failure()
        up = any(client.up for client in self.clients)
        if up or self.router.no_shard_since is None:
            self.router.no_shard_since = None if up else time.monotonic()
        return up and self.window.has_room()

    @override
    def add(self, chunk: SequenceChunk) -> None:
        check_chunk(self.spec, chunk)
        if chunk.priority.max() > MAX_PRIORITY:  # which the shards refuse
            chunk = replace(chunk, priority=np.minimum(chunk.priority, MAX_PRIORITY))
        inserts = self._splitter.split(chunk)
        self.window.acquire(sum(insert.size_bytes for insert in inserts))
        self._check_failure()
        for insert in inserts:
            self._call(self.router.insert, insert)

    @override
    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        # Several requests may be under way. The future fails with ValueError where all shards are
        # up and no sequence can be sampled.
        self._check_failure()
        sample = SampleRequest(self.spec, np.array(uniform, np.float64), self._frames)
        self._call(self.router.sample, sample)
        return sample.future

    @override
    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        # Does not wait; priorities that cannot be delivered are lost.
        keys, priority = check_priorities(keys, priority)
        self._check_failure()
        self._call(self.router.update, keys.copy(), np.minimum(priority, MAX_PRIORITY))

    @override
    def stats(self) -> ReplayStats:
        clients, up = self.clients, [client for client in self.clients if client.up]
        return ReplayStats(
            capacity=sum(client.state.capacity for client in clients),
            size=sum(client.state.size for client in up),
            sampleable=sum(client.state.sampleable for client in up),
            bytes=sum(client.state.bytes for client in clients),
            inserted=self.router.inserted,
            stale_updates=self.router.unknown_updates
            + sum(client.stale_updates for client in clients),
            refused=sum(client.refused for client in clients),
            shards=len(clients),
            healthy_shards=len(up),
            sent_bytes=sum(client.traffic["sent"] for client in clients),
            received_bytes=sum(client.traffic["received"] for client in clients),
            trouble="" if up else f"no replay shard answers: {self.router.causes()}",
        )

    def flush(self, timeout_s: float) -> None:
        """Wait until all inserts, samples and priorities are done, and `stats` includes them.

        Args:
            timeout_s: Longest wait.

        Raises:
            TimeoutError: Something is still under way.
            SeedbedError: The replay has failed.
        """
        self._check_failure()
        assert self._loop is not None
        flushing = asyncio.run_coroutine_threadsafe(self.router.flush(), self._loop)
        try:
            flushing.result(timeout_s)
        except TimeoutError:
            flushing.cancel()
            raise TimeoutError(f"after {timeout_s:g} s something is still under way") from None

    @override
    def close(self) -> None:
        # Work under way is finished first, if that is quick.
        if not self._thread.is_alive():
            return
        try:
            if self.router.failure is None and any(client.up for client in self.clients):
                self.flush(_CLOSE_S)
        except (TimeoutError, SeedbedError) as error:
            log.warning("replay shards: closed early: %s", error)
        if self._loop is not None:
            self._call(self._serving.cancel)
        self._thread.join(_CLOSE_S)

    def _check_failure(self) -> None:
        if self.router.failure is not None:
            raise self.router.failure

    def _call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the event loop."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed
            self._check_failure()
            raise SeedbedError(ExitCode.INTERNAL, "the replay is closed") from None

    def _run(self) -> None:
        try:
            channels.run(self._main())
        except BaseException as error:
            log.exception("the replay's thread failed")
            self.router.fail(
                SeedbedError(
                    ExitCode.THREAD_FAILED,
                    f"thread replay-shards failed: {type(error).__name__}: {error}",
                )
            )
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = asyncio.create_task(self.router.run())
        self._started.set()
        try:
            with suppress(asyncio.CancelledError):
                await self._serving
        finally:
            await asyncio.sleep(_LAST_EVENTS_S)
            self.router.fail(SeedbedError(ExitCode.INTERNAL, "the replay is closed"))
            self.router.close()
