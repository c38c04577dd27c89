"""What a home of experience is to the learner: host, device or service."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.mapped_files import FileBuffer
from seedbed.replay.sequence import Sample, SequenceChunk, SequenceSpec


class ReplayStats(NamedTuple):
    """What is shown of a home."""

    capacity: int  # sequences
    size: int  # sequences that are stored
    sampleable: int  # those that can be drawn
    bytes: int  # memory or disk that it takes when full
    inserted: int  # sequences, since the process started
    stale_updates: int  # priorities that came too late
    shards: int = 0  # of a service
    healthy_shards: int = 0
    trouble: str = ""  # why it neither takes chunks nor gives batches, in words


class ReplayBuffer(Protocol):
    """A home that is *fed*: it gives batches, and takes priorities back. One thread calls it."""

    spec: SequenceSpec

    def can_insert(self) -> bool:
        """Whether `add` would take a chunk now, without waiting."""

    def add(self, chunk: SequenceChunk) -> None:
        """Insert a chunk. Waits where a home takes in less than it is given.

        Raises:
            ValueError: the chunk does not fit; nothing has changed.
        """

    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        """Begin to draw B sequences for numbers [B] uniform in [0, 1), in proportion to p^α."""

    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """Give sequences [B] new priorities; those that are gone meanwhile are counted.

        Raises:
            ValueError: a priority is negative, NaN or infinite.
        """

    def stats(self) -> ReplayStats:
        """How it is. Cheap."""

    def close(self) -> None:
        """Let go of threads, files and connections."""


class HostReplay:
    """The learner's own RAM (or mapped files): see `seedbed.replay.buffer`."""

    def __init__(self, buffer: SequenceBuffer, size_bytes: int) -> None:
        self.spec = buffer.spec
        self.buffer = buffer
        self._bytes = size_bytes

    def can_insert(self) -> bool:
        """See `ReplayBuffer`. Always: the oldest sequences give way."""
        return True

    def add(self, chunk: SequenceChunk) -> None:
        """See `ReplayBuffer`."""
        self.buffer.add(chunk)

    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        """See `ReplayBuffer`. Drawn at once."""
        future: Future[Sample] = Future()
        future.set_result(self.buffer.sample(uniform))
        return future

    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """See `ReplayBuffer`."""
        self.buffer.update_priorities(keys, priority)

    def stats(self) -> ReplayStats:
        """See `ReplayBuffer`."""
        buffer = self.buffer
        return ReplayStats(
            capacity=buffer.capacity,
            size=buffer.ring.size,
            sampleable=buffer.sampleable,
            bytes=self._bytes,
            inserted=buffer.inserted,
            stale_updates=buffer.stale_updates,
        )

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """A copy of everything."""
        return self.buffer.snapshot()

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Take a snapshot back."""
        self.buffer.restore(state)

    def close(self) -> None:
        """See `ReplayBuffer`."""
        if isinstance(self.buffer, FileBuffer):
            self.buffer.close()
