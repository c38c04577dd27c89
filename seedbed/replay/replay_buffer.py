"""Replay buffer as the learner sees it, wherever the sequences are stored."""

from concurrent.futures import Future
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.sequence import Sample, SequenceChunk, SequenceSpec


class ReplayStats(NamedTuple):
    """Statistics of a replay buffer."""

    capacity: int  # sequences
    size: int  # sequences that are stored
    sampleable: int  # sequences that can be sampled
    bytes: int  # of memory or disk that a full buffer takes
    inserted: int  # sequences, since the process started
    stale_updates: int  # priorities that came for sequences already replaced
    refused: int = 0  # sequences of shards whose numbers are not allowed
    shards: int = 0  # 0: the storage is not remote
    healthy_shards: int = 0
    sent_bytes: int = 0  # to shards, by this process
    received_bytes: int = 0  # from shards
    trouble: str = ""  # why the buffer neither takes chunks nor gives batches, in words


class ReplayBuffer(Protocol):
    """Stored sequences that are sampled by priority. One thread calls it.

    Attributes:
        spec: Sizes of a sequence.
    """

    spec: SequenceSpec

    def can_insert(self) -> bool:
        """Return whether `add` would take a chunk now, without waiting.

        Raises:
            SeedbedError: The storage has failed.
        """
        return True

    def add(self, chunk: SequenceChunk) -> None:
        """Insert a chunk. May wait, where a storage stores more slowly than chunks come.

        Raises:
            ValueError: The chunk does not fit; nothing has changed.
            SeedbedError: The storage has failed.
        """

    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        """Begin to draw B sequences, in proportion to priority^α.

        Args:
            uniform: [B] numbers in [0, 1).

        Raises:
            SeedbedError: The storage has failed.
        """

    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """Set new priorities. Sequences that were replaced meanwhile are counted.

        Args:
            keys: [B].
            priority: [B], finite and not negative.

        Raises:
            ValueError: A priority is negative, NaN or infinite; nothing has changed.
        """

    def stats(self) -> ReplayStats:
        """Return the statistics. Cheap."""

    def close(self) -> None:
        """Close threads, files and connections."""
        return
