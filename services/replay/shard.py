"""Replay shard: a sequence buffer, and the one thread that uses it."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from operator import le
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from seedbed.numbers import DEFAULT_BOUNDS, MAX_PRIORITY, Bounds, check_range
from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.codec import chunk_of, sample_reply
from seedbed.replay.incarnations import key_limit, new_incarnation
from seedbed.replay.local_buffer import make_local_buffer
from seedbed.replay.mapped_files import FileBuffer, check_directory, read_description
from seedbed.replay.numbers import check_numbers
from seedbed.replay.sequence import SequenceSpec, describe_spec
from seedbed.rpc.streams import StreamRejected
from seedbed.runtime.metrics import Histogram, Metric, StatsRegistry
from seedbed.services.replay.metrics import AGE_BOUNDS_S, METRICS
from seedbed.v1 import replay_pb2 as wire

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# Work of at most so many bytes takes less than a millisecond.
_SHORT_BYTES = 256 * 1024


class SpecMismatch(StreamRejected):
    """Learner whose spec, exponent or protocol is not the shard's. The message has both sides."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class Shard:
    """Buffer whose spec comes with its files, or with its first learner.

    Methods that are not async run in the shard's thread, through `call`, or in the event loop
    where they are short; one at a time.

    Args:
        capacity: Sequences.
        exponent: α, not negative.
        directory: Folder of the files; None keeps the sequences in memory only.
        memory: Bytes that may be used; None: what this process may use.
        bounds: Largest magnitudes of rewards and float frames, of inserts and of the files.

    Attributes:
        serving: False while the shard stops.
        learners: Open streams that insert.
        refused: Streams that were refused.
        insert_blocked_s: Seconds that inserts waited for the shard's thread.
        age_s: Ages of the sequences that were drawn.
        registry: The shard's metrics.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = METRICS

    def __init__(
        self,
        capacity: int,
        exponent: float,
        directory: Path | None,
        memory: int | None = None,
        bounds: Bounds = DEFAULT_BOUNDS,
    ) -> None:
        self.capacity, self.exponent, self._bounds = capacity, exponent, bounds
        self._directory, self._memory = directory, memory
        self._thread = ThreadPoolExecutor(1, "buffer")
        self._using = threading.Lock()  # the buffer
        self._buffer: SequenceBuffer | None = None
        self._streams: Counter[SequenceSpec] = Counter()
        # The earlier ones of the files, and this one.
        self._incarnations = [new_incarnation(0)]
        self.serving = True
        self.learners = 0
        self.refused = 0
        self._sampled = 0
        self.insert_blocked_s = 0.0
        self.age_s = Histogram(AGE_BOUNDS_S)
        self.registry = StatsRegistry(self)

    async def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Run a method in the shard's thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._alone, function, *arguments)

    async def call_on(self, size: int, function: Callable[..., _T], *arguments: Any) -> _T:
        """Do as `call`, but here if the method is short and the thread idle: a change takes longer.

        Args:
            size: Bytes that the method reads or writes.
            function: The method.
            *arguments: Arguments of the method.
        """
        # A volume may take long to read or write a few bytes.
        short = size <= _SHORT_BYTES and not isinstance(self._buffer, FileBuffer)
        if short and self._using.acquire(blocking=False):
            try:
                return function(*arguments)
            finally:
                self._using.release()
        return await self.call(function, *arguments)

    def _alone(self, function: Callable[..., _T], *arguments: Any) -> _T:
        with self._using:
            return function(*arguments)

    def open(self) -> None:
        """Open the files, where there are some; else check that they can be made.

        Raises:
            SeedbedError: The files cannot be used, or do not fit.
        """
        if self._directory is None:
            return
        check_directory(self._directory)
        found = read_description(self._directory)
        if found is not None and found.complete:
            self._make(found.spec)
            if isinstance(self._buffer, FileBuffer):
                self._buffer.drop_wrong(self._bounds)

    def accept(self, spec: SequenceSpec, exponent: float, bounds: Bounds) -> None:
        """Accept a learner. The spec of the first learner becomes the shard's.

        A learner with another spec takes over a shard without sequences, once no stream with the
        shard's spec is open.

        Args:
            spec: Sizes of the learner's sequences.
            exponent: α of the learner.
            bounds: Largest magnitudes of the learner's rewards and frames.

        Raises:
            SpecMismatch: The shard has another spec or exponent.
            SeedbedError: The spec of the first learner does not fit.
        """
        if exponent != self.exponent:
            raise SpecMismatch(
                f"this shard has priority exponent {self.exponent:g}, and the learner wants "
                f"{exponent:g}"
            )
        held = self._buffer
        is_free = held is not None and not (held.ring.size or self._streams[held.spec])
        if held is not None and held.spec != spec and is_free:
            # An empty shard is the next learner's.
            text = "this shard was empty: it held %s, and a learner wants %s"
            log.warning(text, describe_spec(held.spec), describe_spec(spec))
            self._buffer = None
            held.discard()
        if not all(map(le, bounds, self._bounds)):
            raise SpecMismatch(
                f"this shard stores rewards within {self._bounds.reward:g} and frames within "
                f"{self._bounds.observation:g}, and the learner's are within {bounds.reward:g} and "
                f"{bounds.observation:g}: start it with --max-abs-reward and --max-abs-observation "
                "as environment.max_abs_reward and max_abs_observation of the experiment"
            )
        if self._buffer is None:
            self._make(spec)
        elif self._buffer.spec != spec:
            raise SpecMismatch(
                f"this shard holds {describe_spec(self._buffer.spec)}, and the learner wants "
                f"{describe_spec(spec)}: two learners with different specs need shards of their "
                "own, and a shard that is to hold something else another directory"
            )

    @contextmanager
    def stream_of(self, spec: SequenceSpec) -> Iterator[None]:
        """Count a stream, from before `accept` to its end."""
        self._streams[spec] += 1
        try:
            yield
        finally:
            self._streams[spec] -= 1
            self._streams += Counter()  # forgets the specs without streams

    def _make(self, spec: SequenceSpec) -> None:
        self._buffer = make_local_buffer(
            "this shard holds", spec, self.capacity, self.exponent, self._directory, self._memory
        )
        if isinstance(self._buffer, FileBuffer):
            self._incarnations = self._buffer.incarnations

    @property
    def buffer(self) -> SequenceBuffer:
        """The buffer, once the first learner was accepted."""
        assert self._buffer is not None, "no learner was accepted"
        return self._buffer

    def insert(
        self, message: wire.InsertRequest, payload: memoryview, arrived: float
    ) -> wire.InsertReply:
        """Store a chunk; return the answer.

        Args:
            message: The request without its payload.
            payload: Payload of the request.
            arrived: When the request arrived, by `time.perf_counter`.

        Raises:
            ValueError: The chunk does not fit, or a number is not allowed; nothing has changed.
        """
        self.insert_blocked_s += time.perf_counter() - arrived
        spec = self.buffer.spec
        chunk = chunk_of(spec, message, payload)
        arrays = {**vars(chunk), "version": np.asarray(chunk.version)}
        check_numbers(
            spec, arrays, self._bounds, -1 if chunk.chunk_index < spec.predecessors else 0
        )
        check_range("priority", chunk.priority, 0, MAX_PRIORITY)
        self.buffer.add(chunk)
        return wire.InsertReply(
            sequence=message.sequence,
            sampleable=self.buffer.sampleable,
            total_priority=self.buffer.total_priority,
        )

    def sample(
        self,
        request: int,
        first: int,
        uniform: NDArray[np.float64],
        pack: Callable[[list[Any]], bytes],
    ) -> tuple[bytes, int]:
        """Draw sequences for one message; return the message and how many sequences it has.

        Args:
            request: Number of the request.
            first: Index of the first sequence in the request.
            uniform: [n] numbers in [0, 1), as many as one message takes.
            pack: Copies the pieces of the message, which the next insert changes.
        """
        buffer = self.buffer
        reply = wire.SampleReply(
            request=request,
            first=first,
            total_priority=buffer.total_priority,
            sampleable=buffer.sampleable,
        )
        if not reply.total_priority > 0:
            return pack([reply.SerializeToString()]), 0
        items = buffer.draw(uniform)
        if isinstance(buffer, FileBuffer):
            buffer.prefault(items)
        fields = buffer.fields(items)
        reply.sequences = len(items)
        self._sampled += len(items)
        self.age_s.observe_many(fields["age"])
        pieces = buffer.frame_views(items)
        return pack(sample_reply(buffer.spec, reply, fields, pieces)), len(items)

    def prioritize(self, message: wire.PrioritizeRequest) -> wire.PrioritizeReply:
        """Set priorities; return the answer.

        Raises:
            ValueError: A priority or a key is not allowed; nothing has changed.
        """
        if len(message.key) % 8 or len(message.priority) % 4:
            raise ValueError("keys of 8 bytes and priorities of 4 are expected")
        keys = np.frombuffer(message.key, np.int64)
        priority = np.frombuffer(message.priority, np.float32)
        if len(keys) and len(priority):
            check_range("key", keys, 0, 2**63 - 1)
            check_range("priority", priority, 0, MAX_PRIORITY)
        limit = key_limit(self._incarnations, message.incarnation)
        if limit is not None:
            # Keys of an earlier incarnation may name other sequences now.
            keys = np.where(keys < limit, keys, -1)
        buffer, ring = self.buffer, self.buffer.ring
        stale_before = ring.stale_updates
        buffer.update_priorities(keys, priority)
        return wire.PrioritizeReply(
            sequence=message.sequence,
            stale=ring.stale_updates - stale_before,
            total_priority=buffer.total_priority,
        )

    def state(self) -> wire.ShardState:
        """Return the state of the shard."""
        state = wire.ShardState(
            incarnation=self._incarnations[-1].number,
            capacity=self.capacity,
            sampled=self._sampled,
            serving=self.serving,
        )
        buffer = self._buffer
        if buffer is not None:
            stats = buffer.stats()
            state.size, state.sampleable, state.bytes = stats.size, stats.sampleable, stats.bytes
            state.inserted, state.stale_updates = stats.inserted, stats.stale_updates
            state.total_priority = buffer.total_priority
            state.corrupt = buffer.corrupt if isinstance(buffer, FileBuffer) else 0
        return state

    @property
    def present(self) -> wire.ShardState:
        """Present state of the shard."""
        return self.state()

    def status(self) -> dict[str, Any]:
        """Return the state as JSON for the page /status. Any thread."""
        state = self.state()
        # The keys of the page outlast the fields of the message.
        keys = {"total_priority": "mass", "corrupt": "damaged"}
        names = [field.name for field in state.DESCRIPTOR.fields]
        return {
            **{keys.get(name, name): getattr(state, name) for name in names},
            "incarnation": f"{state.incarnation:x}",
            "exponent": self.exponent,
            "learners": self.learners,
            "spec": None if self._buffer is None else asdict(self._buffer.spec),
        }

    def close(self) -> None:
        """Finish the work under way, and write everything to the disk."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._buffer is not None:
            self._buffer.close()
