"""The service home: any number of replay shards over gRPC, as if they were one replay."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.buffer import check_chunk, check_priorities
from seedbed.replay.client.replay_buffer import ReplayStats
from seedbed.replay.client.sample_request import (
    Frames,
    SampleRequest,
    ShardRequest,
    split_by_priority,
)
from seedbed.replay.client.shard_client import PendingInsert, ShardClient, Update
from seedbed.replay.codec import MESSAGE_BYTES, chunk_bytes
from seedbed.replay.sequence import Sample, SequenceChunk, SequenceSpec
from seedbed.rpc import channels
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)

# A key of this home: which life of which shard gave it, and the shard's own key. 2^44 sequences
# are 500 years at 1,000 a second; 2^19 lives are more than anybody will restart.
_KEY_BITS = 44
_LAST_WORDS_S = 0.2
_BATCHES = 8  # whose memory is kept for the next ones
_CLOSE_S = 10.0  # for what is under way to be stored


class ShardedReplay:
    """Replay on shards. See `ReplayBuffer`; any thread may call it.

    The environments of a chunk go to shards by the chunk's chain and their place in it, always the
    same ones, so that a shard has all the frames of its sequences. Where a shard is away its part
    goes to the next one, as a new chain; when it comes back it gets its part again.

    A number u of a request chooses a shard in proportion to the shards' masses, and then a sequence
    there, so that a sequence of priority p is drawn with probability p^α / Σ p^α over all shards.
    The masses are those of the shards' newest answers: of any answer on any stream, and at least
    every second. A shard draws from what it holds when the request reaches it; so with updates
    under way the distribution is that of a few milliseconds ago between the shards, and the newest
    within one. `Sample.probability` is exact even so: the share that the shard had when it was
    chosen, times the probability within the shard when it drew.

    What was sent to a shard that died before it answered is sent again to another one; it may be
    stored twice then, and never not at all.

    Args:
        addresses: `host:port` or `unix:PATH` of each shard. The order says who gets what.
        exponent: α, which must be the shards' own.
        timeout_s: how long to go on without any shard.
        reply_timeout_s: how long a shard may owe an answer before it is left out.
        window_bytes: of chunks that are on their way; `add` waits while there are more.

    Attributes:
        blocked_s: seconds that `add` waited for room.
        resent: sequences that were sent again because a shard died.
        redrawn: sequences that were drawn again, likewise.
        lost: sequences that were given up, when the home failed or closed.
    """

    def __init__(
        self,
        spec: SequenceSpec,
        addresses: Sequence[str],
        exponent: float,
        *,
        tls: Tls | None = None,
        timeout_s: float = 600.0,
        reply_timeout_s: float = 15.0,
        window_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        if not addresses or len(set(addresses)) < len(addresses):
            raise SeedbedError(
                ExitCode.CONFIG, f"replay shards {list(addresses)}: one or more, each once"
            )
        one = chunk_bytes(spec)
        if one > channels.MAX_MESSAGE_BYTES - MESSAGE_BYTES:
            raise SeedbedError(
                ExitCode.CONFIG,
                f"a sequence of {one} bytes does not fit into a message of "
                f"{channels.MAX_MESSAGE_BYTES}: fewer steps, or another home",
            )
        self.spec = spec
        self.blocked_s = 0.0
        self.resent = self.redrawn = self.lost = 0
        self._columns = max(1, MESSAGE_BYTES // one)  # of a message
        self._column_bytes = one
        self._timeout_s, self._window = timeout_s, window_bytes
        self._salt = secrets.token_bytes(16)
        self._failure: SeedbedError | None = None
        self._room = threading.Condition()
        self._in_flight = 0  # bytes of pieces that are not stored; under _room
        self._block_bytes = 0  # of the newest chunk
        self._refused_since: float | None = None  # since when `room` has found no shard up
        self._inserted = 0
        self._unknown_updates = 0
        self._frames = Frames(_BATCHES)
        self._join = ThreadPoolExecutor(1, "replay-join")
        self._homeless: list[PendingInsert] = []  # no shard is up
        self._waiting: list[ShardRequest] = []  # no shard has anything
        self._draws: set[SampleRequest] = set()
        self._lives: dict[tuple[int, int], int] = {}  # of (shard, incarnation), in order
        self.links = [
            ShardClient(index, address, spec, exponent, self, tls, reply_timeout_s)
            for index, address in enumerate(addresses)
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay-shards", daemon=True)
        self._thread.start()
        self._started.wait()

    # --- the learner's side ----------------------------------------------------------------

    def can_insert(self) -> bool:
        """Return whether a chunk can be inserted; False while no shard is up.

        Raises:
            SeedbedError: no shard for `timeout_s`, or one refuses this learner.
        """
        self._check_failure()
        up = any(link.up for link in self.links)
        if up or self._refused_since is None:
            self._refused_since = None if up else time.monotonic()
        return up and self._fits()

    def _fits(self) -> bool:
        """One more chunk like the last one."""
        return not self._in_flight or self._in_flight + self._block_bytes <= self._window

    def add(self, chunk: SequenceChunk) -> None:
        """See `ReplayBuffer`. Returns when the chunk is on its way; waits while too much is.

        Raises:
            ValueError: the chunk does not fit.
            SeedbedError: no shard for `timeout_s`, or one refuses this learner.
        """
        check_chunk(self.spec, chunk)
        pieces = list(self._split(chunk))
        self._wait_for_room(sum(piece.bytes for piece in pieces))
        for piece in pieces:
            self._call(self._route, piece)

    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        """See `ReplayBuffer`. Several may be under way.

        The future fails with ValueError where all shards are up and nothing can be drawn, and with
        SeedbedError after `timeout_s` without any shard that has something.
        """
        self._check_failure()
        draw = SampleRequest(self.spec, np.array(uniform, np.float64), self._frames)
        self._call(self._begin_draw, draw)
        return draw.future

    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """See `ReplayBuffer`. Does not wait; what cannot be delivered is counted."""
        keys, priority = check_priorities(keys, priority)
        self._check_failure()
        self._call(self._send_update, keys.copy(), priority.copy())

    def stats(self) -> ReplayStats:
        """See `ReplayBuffer`: the shards that are up."""
        up = [link for link in self.links if link.up]
        states = [link.state for link in up]
        return ReplayStats(
            capacity=sum(link.state.capacity for link in self.links),
            size=sum(state.size for state in states),
            sampleable=sum(state.sampleable for state in states),
            bytes=sum(link.state.bytes for link in self.links),
            inserted=self._inserted,
            stale_updates=self._unknown_updates + sum(link.stale_updates for link in self.links),
            shards=len(self.links),
            healthy_shards=len(up),
            trouble="" if up else f"no replay shard answers: {self._causes()}",
        )

    @property
    def lost_updates(self) -> int:
        """Priorities that were not delivered: their shard was away, or too slow."""
        return sum(link.lost_updates for link in self.links)

    def flush(self, timeout_s: float) -> None:
        """Wait until everything that was given is stored, drawn and set, and `state` knows it.

        Raises:
            TimeoutError: it is not.
            SeedbedError: it never will be.
        """
        deadline = time.monotonic() + timeout_s
        idle = threading.Event()
        while True:
            self._check_failure()
            idle.clear()
            self._call(lambda: None if self._busy() else idle.set())
            if idle.wait(0.005):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_s:g} s something is still under way")
        for _ in range(2):  # the first answer may be to an older question
            before = [link.looks for link in self.links]
            while any(
                link.up and link.looks == looks
                for link, looks in zip(self.links, before, strict=True)
            ):
                self._check_failure()
                self._call(self._look)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"after {timeout_s:g} s a shard has not said how it is")
                time.sleep(0.002)

    def _look(self) -> None:
        for link in self.links:
            link.look()

    def close(self) -> None:
        """See `ReplayBuffer`. What is on its way is stored first, if that goes quickly."""
        if not self._thread.is_alive():
            return
        try:
            if self._failure is None and any(link.up for link in self.links):
                self.flush(_CLOSE_S)
        except (TimeoutError, SeedbedError) as error:
            log.warning("replay shards: closed early: %s", error)
        if self._loop is not None:
            self._call(self._stop.set)
        self._thread.join(_CLOSE_S)

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _call(self, function: Any, *arguments: Any) -> None:
        """Run in the event loop."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed
            self._check_failure()
            raise SeedbedError(ExitCode.INTERNAL, "the replay's home is closed") from None

    def _split(self, chunk: SequenceChunk) -> Iterator[PendingInsert]:
        """What goes where. Equal chains and columns always give equal pieces."""
        shards, columns = len(self.links), chunk.environments
        turn = _number(self._salt, chunk.stream_id) % shards
        for share in range(shards):
            start, end = columns * share // shards, columns * (share + 1) // shards
            for first in range(start, end, self._columns):
                which = slice(first, min(first + self._columns, end))
                yield PendingInsert(
                    chunk,
                    which,
                    # Another learner's chains have other numbers, on the same shard.
                    stream_id=_number(self._salt, chunk.stream_id, first, columns),
                    home=(turn + share) % shards,
                    bytes=self._column_bytes * (which.stop - which.start),
                )

    def _wait_for_room(self, size: int) -> None:
        self._block_bytes = size

        def room() -> bool:
            return self._fits() or self._failure is not None

        with self._room:
            if not room():
                since = time.monotonic()
                # A shard that owes an answer is left out, and no shard is a failure, in time.
                self._room.wait_for(room)
                self.blocked_s += time.monotonic() - since
            self._check_failure()
            self._in_flight += size

    # --- the event loop's side -------------------------------------------------------------

    def _run(self) -> None:
        try:
            channels.run(self._main())
        except BaseException as error:
            log.exception("the replay's thread failed")
            self._fail(
                SeedbedError(
                    ExitCode.THREAD_FAILED,
                    f"thread replay-shards failed: {type(error).__name__}: {error}",
                )
            )
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(link.run()) for link in self.links]
        tasks += [asyncio.create_task(self._clock())]
        stopping: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
        self._started.set()
        try:
            while not stopping.done():
                await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in tasks if task.done()]:
                    tasks.remove(task)
                    task.result()  # a defect; who was refused has said so
        finally:
            for task in (*tasks, stopping):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # All loops of a process share gRPC's queue: its last words are for this one.
            await asyncio.sleep(_LAST_WORDS_S)
            self._fail(SeedbedError(ExitCode.INTERNAL, "the replay's home is closed"))
            self._join.shutdown(wait=False)

    async def _clock(self) -> None:
        """Fail once nobody could be asked for too long."""
        while True:
            await asyncio.sleep(min(1.0, self._timeout_s / 10))
            if any(link.up for link in self.links):
                self._refused_since = None
            since = [piece.since for piece in self._homeless]
            since += [part.since for part in self._waiting]
            since += [] if self._refused_since is None else [self._refused_since]
            if since and time.monotonic() - min(since) > self._timeout_s:
                self._fail(
                    SeedbedError(ExitCode.REPLAY_UNREACHABLE,
                                 f"no replay shard for {self._timeout_s:g} s: {self._causes()}")
                )  # fmt: skip

    def _causes(self) -> str:
        return "; ".join(
            f"{link.address}: {link.cause if not link.up else 'has nothing to draw'}"
            for link in self.links
        )

    def _fail(self, error: SeedbedError) -> None:
        """Nothing goes on after this."""
        with self._room:
            if self._failure is None:
                self._failure = error
            self._room.notify_all()
        for draw in list(self._draws):
            draw.fail(self._failure)
        self._draws.clear()
        self._waiting.clear()
        lost = sum(piece.sequences for piece in self._homeless)
        self._homeless.clear()
        if lost:
            self.lost += lost
            log.error("%d sequences were given to the replay and are stored nowhere", lost)

    def _busy(self) -> bool:
        return bool(self._in_flight or self._draws or any(link.busy for link in self.links))

    def _route(self, piece: PendingInsert) -> None:
        """Send a piece to its shard, or to the next one that is up."""
        order = (*self.links[piece.home :], *self.links[: piece.home])
        link = next((link for link in order if link.up), None)
        if self._failure is not None:
            self._homeless.append(piece)
            self._fail(self._failure)  # counts it
        elif link is None:
            piece.since = time.monotonic()
            self._homeless.append(piece)
        else:
            link.insert(piece)

    def _begin_draw(self, draw: SampleRequest) -> None:
        if self._failure is not None:
            draw.fail(self._failure)
            return
        self._draws.add(draw)
        self._draw(ShardRequest(draw, np.arange(len(draw.uniform)), draw.uniform))

    def _draw(self, part: ShardRequest) -> None:
        """Share a part of a batch out to the shards, or have it wait for one."""
        masses = np.array([link.total_priority if link.up else 0.0 for link in self.links])
        if not masses.any():
            part.since = time.monotonic()
            self._waiting.append(part)
            self._look_at_waiting()
            return
        shards, rest = split_by_priority(part.uniform, masses)
        for index in np.unique(shards).tolist():
            mine = shards == index
            share = float(masses[index] / masses.sum())
            self.links[index].draw(ShardRequest(part.draw, part.columns[mine], rest[mine], share))

    def _look_at_waiting(self) -> None:
        """Whether those can go on who found nothing to draw, or never will."""
        if any(link.up and link.total_priority > 0 for link in self.links):
            waiting, self._waiting = self._waiting, []
            for part in waiting:
                self._draw(part)
        elif not self._in_flight and all(link.up for link in self.links):
            waiting, self._waiting = self._waiting, []
            size = sum(link.state.size for link in self.links)
            for part in waiting:
                self._draws.discard(part.draw)
                part.draw.fail(
                    ValueError(
                        f"nothing can be drawn: {size} of {self.stats().capacity} items are in use "
                        f"on {len(self.links)} shards, and none of them has a priority above 0 and "
                        f"the {self.spec.predecessors} chunks before it"
                    )
                )

    def _send_update(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        lives, own = list(self._lives), keys & (1 << _KEY_BITS) - 1
        known = (keys >= 0) & (keys >> _KEY_BITS < len(lives))
        self._unknown_updates += int(np.count_nonzero(~known))
        for number in np.unique(keys[known] >> _KEY_BITS).tolist():
            mine = known & (keys >> _KEY_BITS == number)
            shard, incarnation = lives[number]
            self.links[shard].update(Update(incarnation, own[mine], priority[mine]))

    # --- what links tell -------------------------------------------------------------------

    def on_up(self, link: ShardClient) -> None:
        """See `Owner`."""
        homeless, self._homeless = self._homeless, []
        for piece in homeless:
            self._route(piece)
        self._look_at_waiting()

    def on_down(
        self, link: ShardClient, pieces: list[PendingInsert], parts: list[ShardRequest]
    ) -> None:
        """See `Owner`."""
        self.resent += sum(piece.sequences for piece in pieces)
        for piece in pieces:
            self._route(piece)
        self.redrawn += sum(len(part.columns) for part in parts)
        for part in parts:
            self._draw(part)

    def on_refused(self, link: ShardClient, error: SeedbedError) -> None:
        """See `Owner`."""
        self._fail(error)

    def on_stored(self, link: ShardClient, piece: PendingInsert) -> None:
        """See `Owner`."""
        self._inserted += piece.sequences
        with self._room:
            self._in_flight -= piece.bytes
            self._room.notify_all()
        if self._waiting:
            self._look_at_waiting()

    async def on_drawn(
        self, link: ShardClient, part: ShardRequest, arrays: dict[str, NDArray[Any]], mass: float
    ) -> None:
        """See `Owner`."""
        life = (link.index, link.state.incarnation)
        number = self._lives.setdefault(life, len(self._lives))
        arrays["key"] = arrays["key"] | number << _KEY_BITS
        columns = part.columns[: len(arrays["key"])]
        # In a thread, so that meanwhile the next message comes in. A link that goes down cancels
        # this; but the part is the link's no more, and nobody else would finish it.
        putting = asyncio.get_running_loop().run_in_executor(
            self._join, part.draw.put, columns, arrays, part.share, mass
        )
        putting.add_done_callback(lambda done: self._on_put(part.draw, done))
        await asyncio.shield(putting)

    def _on_put(self, draw: SampleRequest, done: asyncio.Future[bool]) -> None:
        """A part of a batch is in its place, and perhaps it was the last one."""
        if done.cancelled():
            return  # the home closes
        error = done.exception()
        if error is not None:
            draw.fail(RuntimeError(f"a batch was not put together: {error}"))
        if error is not None or done.result():
            self._draws.discard(draw)

    def on_empty(self, link: ShardClient, part: ShardRequest) -> None:
        """See `Owner`."""
        self.redrawn += len(part.columns)
        self._draw(part)


def _number(salt: bytes, *numbers: int) -> int:
    """A number below 2^63 that these always have, and hardly any others."""
    digest = hashlib.blake2b(
        b"".join(number.to_bytes(8, "little") for number in numbers), digest_size=8, key=salt
    ).digest()
    return int.from_bytes(digest, "little") >> 1
