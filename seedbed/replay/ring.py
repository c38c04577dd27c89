"""Index of the replay ring: which item holds which sequence, and what an eviction invalidates.

Stores keys only, no data. A key says item and generation at once (see `seedbed.replay`), so a
key of a sequence that was already replaced is recognized.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.replay_buffer import ReplayStats

Keys = NDArray[np.int64]


class Added(NamedTuple):
    """Result of an insertion."""

    keys: Keys  # [E], of the new sequences
    sampleable: NDArray[np.bool_]  # [E], the new sequences that can be sampled
    invalidated: Keys  # items whose sequences cannot be sampled any more


class _Stream(NamedTuple):
    chunk_index: int  # of its newest chunk
    keys: Keys  # [E], of its newest sequences


class Ring:
    """First-in, first-out index. A sequence is sampleable while its P predecessors are stored.

    Args:
        capacity: Items.
        predecessors: P, the chunks before its own that a sequence uses.
    """

    def __init__(self, capacity: int, predecessors: int) -> None:
        self.capacity = capacity
        self.predecessors = predecessors
        self.next_key = 0
        # Sequences, since this object was made.
        self.inserted = 0
        # Priorities that came for sequences already replaced.
        self.stale_updates = 0
        # -1: the item is empty.
        self.key: Keys = np.full(capacity, -1, np.int64)
        # Key of the same environment's sequence in the chunk before; -1: none.
        self.previous: Keys = np.full(capacity, -1, np.int64)
        self.is_sampleable: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        # How many items are sampleable.
        self.sampleable = 0
        # Key of the sequence whose first frames are in the item, and which becomes invalid with it.
        self._dependent_key: Keys = np.full(capacity, -1, np.int64)
        self._streams: dict[int, _Stream] = {}

    @property
    def size(self) -> int:
        """Items in use, sampleable or not."""
        return int(np.count_nonzero(self.key >= 0))

    def item(self, keys: Keys) -> Keys:
        """Return the items [N] in which keys [N] are, or were, stored."""
        return keys % self.capacity

    def contains(self, keys: Keys) -> NDArray[np.bool_]:
        """Return which of keys [N] are still stored; -1 never is."""
        stored: NDArray[np.bool_] = (keys >= 0) & (self.key[self.item(keys)] == keys)
        return stored

    def accept_updates(self, keys: Keys) -> NDArray[np.bool_]:
        """Return which of keys [N] can be sampled; count the others as stale updates."""
        valid = self.contains(keys) & self.is_sampleable[self.item(keys)]
        self.stale_updates += int(np.count_nonzero(~valid))
        return valid

    def stats(self, size_bytes: int) -> ReplayStats:
        """Return the statistics of the replay whose index this is.

        Args:
            size_bytes: Bytes that the full replay takes.
        """
        return ReplayStats(
            capacity=self.capacity,
            size=self.size,
            sampleable=self.sampleable,
            bytes=size_bytes,
            inserted=self.inserted,
            stale_updates=self.stale_updates,
        )

    def add(self, stream_id: int, chunk_index: int, count: int) -> Added:
        """Make room for a chunk, and index its sequences.

        A chunk that does not follow the newest chunk of its stream begins the stream anew.

        Args:
            stream_id: Stream of the chunk.
            chunk_index: Index of the chunk in its stream.
            count: Environments of the chunk.

        Raises:
            ValueError: `count` is more than there are items.
        """
        if count > self.capacity:
            raise ValueError(
                f"a chunk of {count} sequences does not fit into a replay of {self.capacity}"
            )
        newest = self._streams.get(stream_id)
        if newest and (newest.chunk_index, len(newest.keys)) == (chunk_index - 1, count):
            previous = newest.keys
        else:
            previous = np.full(count, -1, np.int64)
        keys = np.arange(self.next_key, self.next_key + count)
        items = self.item(keys)
        invalidated = self._evict(items)
        self.next_key += count
        self.inserted += count
        self.key[items] = keys
        self.previous[items] = np.where(self.contains(previous), previous, -1)
        sampleable = self._mark_sampleable(keys)
        self._streams[stream_id] = _Stream(chunk_index, keys)
        if len(self._streams) > 2 * self.capacity:
            self._forget_ended_streams()
        return Added(keys, sampleable, invalidated)

    def _evict(self, items: Keys) -> Keys:
        """Empty items; return them and the items whose sequences depend on them."""
        dependents = self._dependent_key[items]
        invalidated = np.union1d(items, self.item(dependents[dependents >= 0]))
        self.sampleable -= int(np.count_nonzero(self.is_sampleable[invalidated]))
        self.is_sampleable[invalidated] = False
        self.key[items] = self.previous[items] = self._dependent_key[items] = -1
        return invalidated

    def _mark_sampleable(self, keys: Keys) -> NDArray[np.bool_]:
        """Mark the new sequences whose frames are all stored; return which [N] they are.

        Records whose eviction invalidates them.
        """
        first = self.predecessor_keys(keys)[-1]
        sampleable: NDArray[np.bool_] = first >= 0
        items = self.item(keys[sampleable])
        self.is_sampleable[items] = True
        self.sampleable += len(items)
        self._dependent_key[self.item(first[sampleable])] = keys[sampleable]
        return sampleable

    def predecessor_keys(self, keys: Keys) -> list[Keys]:
        """Return keys [N] and the keys [N] of their P predecessors, the nearest first; -1: none."""
        found = [keys]
        for _ in range(self.predecessors):
            before = np.where(found[-1] >= 0, self.previous[self.item(found[-1])], -1)
            found.append(np.where(self.contains(before), before, -1))
        return found

    def _forget_ended_streams(self) -> None:
        """Drop the streams whose newest sequences were evicted."""
        self._streams = {
            stream_id: newest
            for stream_id, newest in self._streams.items()
            if newest.keys[-1] >= self.next_key - self.capacity
        }

    def restore(self, key: Keys, previous: Keys) -> None:
        """Take over the keys of another ring, into a new one. Its streams have ended.

        Impossible keys (in a foreign item, or too old to be stored) are left out.

        Args:
            key: [capacity], as in the attribute `key`.
            previous: [capacity], as in the attribute `previous`.
        """
        items = np.arange(self.capacity)
        self.next_key = int(key.max(initial=-1)) + 1
        valid = (key >= 0) & (self.item(key) == items) & (key >= self.next_key - self.capacity)
        self.key[:] = np.where(valid, key, -1)
        self.previous[:] = np.where(valid & self.contains(previous), previous, -1)
        self._mark_sampleable(self.key[valid])
