"""Router of a sharded replay: which shard gets which work, and what happens when one fails."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc.aio
import numpy as np
from numpy.typing import NDArray

from seedbed.replay.client.pending_insert import PendingInsert
from seedbed.replay.client.sample_request import SampleRequest, ShardRequest, split_by_priority
from seedbed.replay.client.shard_client import ShardClient, ShardRefused
from seedbed.replay.client.shard_keys import ShardKeys
from seedbed.replay.sequence import Sample
from seedbed.rpc.reconnect import Attempts
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)

# Draws in the place of one sequence that is refused, before the request waits for other sequences.
_MOST_TRIES = 20


class InsertWindow:
    """Bytes of inserts that are not stored yet, below a limit. Thread-safe.

    Args:
        limit_bytes: Bytes above which `acquire` waits.

    Attributes:
        in_flight: Bytes of inserts that are not stored yet.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._closed = False
        # Bytes of the newest chunk.
        self._chunk_bytes = 0
        self.in_flight = 0

    def has_room(self) -> bool:
        """Return whether one more chunk like the newest fits, or the window is closed."""
        fits = not self.in_flight or self.in_flight + self._chunk_bytes <= self._limit_bytes
        return fits or self._closed

    def acquire(self, size: int) -> None:
        """Wait until a chunk fits, and count its bytes. Returns at once when closed.

        Args:
            size: Bytes of the chunk.
        """
        self._chunk_bytes = size
        with self._changed:
            # Ends in time: a shard that owes an answer is left out, and no shard is a failure.
            self._changed.wait_for(self.has_room)
            if not self._closed:
                self.in_flight += size

    def release(self, size: int) -> None:
        """Subtract the bytes of an insert that is stored."""
        with self._changed:
            self.in_flight -= size
            self._changed.notify_all()

    def close(self) -> None:
        """Make `acquire` return at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class ShardRouter:
    """Work of all shards. Event loop only; other threads may read the attributes.

    One task a shard (`_serve_shard`) connects its `ShardClient` again and again, takes the results
    of inserts and samples, and reroutes what a failed connection left undone.

    Args:
        clients: One client a shard.
        window: Bytes of the inserts that are not stored yet.
        timeout_s: Longest time to go on without any shard.
        predecessors: P, the chunks before its own that a sequence uses.

    Attributes:
        failure: Why the replay has failed; None while it works.
        inserted: Sequences that are stored.
        unknown_updates: Priorities with keys that no shard has assigned.
        no_shard_since: Since when the learner has found no shard up; None while one is.
    """

    def __init__(
        self, clients: list[ShardClient], window: InsertWindow, timeout_s: float, predecessors: int
    ) -> None:
        self.clients = clients
        self._window, self._timeout_s, self._predecessors = window, timeout_s, predecessors
        self.failure: SeedbedError | None = None
        self.inserted = self.unknown_updates = 0
        self.no_shard_since: float | None = None
        self._keys = ShardKeys()
        # Copies sequences into batches, while the event loop receives the next ones.
        self._joiner = ThreadPoolExecutor(1, "replay-join")
        self._draws = np.random.default_rng()  # in the place of sequences that are refused
        # Inserts that wait because no shard is up, and requests because no shard has sequences.
        self._unrouted_inserts: list[PendingInsert] = []
        self._pending_requests: list[ShardRequest] = []
        # By future: a future that referred to the batch would keep its memory until a collection.
        self._samples: dict[Future[Sample], SampleRequest] = {}

    async def run(self) -> None:
        """Serve all shards until cancelled. Raises a defect; a refusal sets `failure`."""
        await asyncio.gather(self._check_deadlines(), *map(self._serve_shard, self.clients))

    def close(self) -> None:
        """End the thread that copies sequences into batches."""
        self._joiner.shutdown(wait=False)

    async def flush(self) -> None:
        """Wait until all work has its result, and the state of each shard includes it.

        Raises:
            SeedbedError: The replay has failed.
        """
        while self._window.in_flight or self._samples or any(one.busy for one in self.clients):
            if self.failure is not None:
                raise self.failure
            await asyncio.sleep(0.002)
        for client in self.clients:
            if client.up:
                # The client notices a connection that has ended by itself.
                with suppress(grpc.aio.AioRpcError, ConnectionError):
                    await client.update_state()

    # --- shards ------------------------------------------------------------------------------

    async def _serve_shard(self, client: ShardClient) -> None:
        """Keep one shard connected, take its results, and reroute its unfinished work."""
        async for _ in Attempts():
            try:
                await client.run(self._route_unrouted, self._take_stored, self._take_samples)
            except ShardRefused as refusal:
                self._reroute(client)
                self.fail(refusal)
                return
            finally:
                self._reroute(client)

    async def _take_stored(self, client: ShardClient) -> None:
        while True:
            insert = await client.next_stored()
            self.inserted += insert.sequences
            self._window.release(insert.size_bytes)
            if self._pending_requests:
                self._retry_pending()

    async def _take_samples(self, client: ShardClient) -> None:
        before: tuple[Future[None], Callable[[], None]] | None = None
        while True:
            part, arrays, total_priority, release = await client.next_sample()
            if not arrays:
                release()
                self._route_request(part)
                continue
            if wrong := client.wrong(arrays):
                part, arrays = self._refuse(client, part, arrays, wrong)
            incarnation = client.state.incarnation
            arrays["key"] = self._keys.join(client.index, incarnation, arrays["key"])
            # In a thread, while the next message comes in. A connection that ends does not cancel
            # this: no other shard is asked for these sequences any more.
            filling = self._joiner.submit(part.sample.fill, part, arrays, total_priority)
            del part, arrays
            if before is not None:
                await asyncio.shield(asyncio.wrap_future(before[0]))
                before[1]()
            before = filling, release

    def _refuse(
        self,
        client: ShardClient,
        part: ShardRequest,
        arrays: dict[str, NDArray[Any]],
        wrong: list[int],
    ) -> tuple[ShardRequest, dict[str, NDArray[Any]]]:
        """Draw others in the place of sequences whose numbers are not allowed.

        They get a priority of 0 in their shard, so that they are not drawn again.

        Returns:
            The part of the request and the arrays of the sequences that are allowed.
        """
        client.refused += len(wrong)
        refused = np.isin(np.arange(len(part.places)), wrong)
        keys = arrays["key"][refused].astype(np.int64)
        client.update(client.state.incarnation, keys, np.zeros(len(keys), np.float32))
        again = replace(
            part,
            places=part.places[refused],
            uniform=self._draws.random(len(wrong)),
            tries=part.tries + 1,
            since=part.since,
        )
        if again.tries <= _MOST_TRIES:
            self._route_request(again)
        else:  # until the shards store other ones, or for as long as none may answer
            self._pending_requests.append(again)
        kept = replace(part, places=part.places[~refused], uniform=part.uniform[~refused])
        return kept, {name: array[~refused] for name, array in arrays.items()}

    def _reroute(self, client: ShardClient) -> None:
        """Give the unfinished work of a shard that is not connected to the others."""
        inserts, requests = client.take_unfinished()
        for insert in inserts:
            self.insert(insert)
        for request in requests:
            self._route_request(request)

    def _route_unrouted(self) -> None:
        """Route what has waited for a shard: one is up now."""
        inserts, self._unrouted_inserts = self._unrouted_inserts, []
        for insert in inserts:
            self.insert(insert)
        self._retry_pending()

    def insert(self, insert: PendingInsert) -> None:
        """Send an insert to its preferred shard, or to the next one that is up."""
        if self.failure is not None:
            self._unrouted_inserts.append(insert)
            self.fail(self.failure)  # counts the insert as lost
            return
        first = insert.preferred_shard
        order = (*self.clients[first:], *self.clients[:first])
        client = next((client for client in order if client.up), None)
        if client is None:
            insert.since = time.monotonic()
            self._unrouted_inserts.append(insert)
        else:
            client.insert(insert)

    def sample(self, sample: SampleRequest) -> None:
        """Request a batch from the shards."""
        if self.failure is not None:
            sample.fail(self.failure)
            return
        self._samples[sample.future] = sample
        sample.future.add_done_callback(self._samples.pop)
        self._route_request(ShardRequest(sample, np.arange(len(sample.uniform)), sample.uniform))

    def _route_request(self, request: ShardRequest) -> None:
        """Divide a request among the shards, or keep it until one of them has sequences."""
        totals = np.array([one.total_priority if one.up else 0.0 for one in self.clients])
        if not totals.any():
            request.since = time.monotonic()
            self._pending_requests.append(request)
            self._retry_pending()
            return
        shards, rest = split_by_priority(request.uniform, totals)
        for index in np.unique(shards).tolist():
            chosen = shards == index
            part = replace(
                request,
                places=request.places[chosen],
                uniform=rest[chosen],
                shard_probability=float(totals[index] / totals.sum()),
            )
            self.clients[index].sample(part)

    def _retry_pending(self) -> None:
        """Retry the requests that found nothing to sample, or fail them if no shard ever will."""
        if any(client.up and client.total_priority > 0 for client in self.clients):
            pending, self._pending_requests = self._pending_requests, []
            for request in pending:
                self._route_request(request)
        elif not self._window.in_flight and all(client.up for client in self.clients):
            pending, self._pending_requests = self._pending_requests, []
            size = sum(client.state.size for client in self.clients)
            capacity = sum(client.state.capacity for client in self.clients)
            error = ValueError(
                f"nothing can be drawn: {size} of {capacity} items are in use on "
                f"{len(self.clients)} shards, and none of them has a priority above 0 and the "
                f"{self._predecessors} chunks before it"
            )
            for request in pending:
                request.sample.fail(error)

    def update(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """Send new priorities to the shards of their sequences.

        Args:
            keys: [N].
            priority: [N], finite and not negative.
        """
        self.unknown_updates += len(keys)
        for shard, incarnation, which, own in self._keys.split(keys):
            self.unknown_updates -= len(own)
            self.clients[shard].update(incarnation, own, priority[which])

    async def _check_deadlines(self) -> None:
        """Fail once something has waited for a shard for too long."""
        while True:
            await asyncio.sleep(min(1.0, self._timeout_s / 10))
            if any(client.up for client in self.clients):
                self.no_shard_since = None
            since = [insert.since for insert in self._unrouted_inserts]
            since += [request.since for request in self._pending_requests]
            since += [] if self.no_shard_since is None else [self.no_shard_since]
            if since and time.monotonic() - min(since) > self._timeout_s:
                text = f"no replay shard for {self._timeout_s:g} s: {self.causes()}"
                self.fail(SeedbedError(ExitCode.REPLAY_UNREACHABLE, text))

    def causes(self) -> str:
        """Describe why each shard gives no sequences."""
        return "; ".join(
            f"{client.address}: {'has nothing to draw' if client.up else client.cause}"
            for client in self.clients
        )

    def fail(self, error: SeedbedError) -> None:
        """Fail all work under way, and all that comes later."""
        if self.failure is None:
            self.failure = error
        self._window.close()
        for sample in list(self._samples.values()):
            sample.fail(self.failure)
        self._pending_requests.clear()
        lost = sum(insert.sequences for insert in self._unrouted_inserts)
        self._unrouted_inserts.clear()
        if lost:
            log.error("%d sequences were given to the replay and are stored nowhere", lost)
