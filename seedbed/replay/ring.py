"""Which sequence lives where, who goes before it, and what dies with whom. No data, only keys.

Keys count insertions: 0, 1, 2, ...; key k lives in item k mod capacity until key k + capacity
takes its place. A key therefore says item and generation at once, and a late one is recognized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]


class Added(NamedTuple):
    """What an insertion did."""

    keys: Keys  # [E], of the new sequences
    whole: NDArray[np.bool_]  # [E], that have all their frames, so can be sampled
    retired: Keys  # items whose sequences cannot be sampled any more: frames of theirs are gone


@dataclass
class _Chain:
    number: int  # of its newest block
    keys: Keys  # [E], of its newest sequences


class Ring:
    """First in, first out. A sequence is whole while the blocks that it reaches into are there.

    Args:
        capacity: items.
        predecessors: P, blocks before its own that a sequence reaches into.
    """

    def __init__(self, capacity: int, predecessors: int) -> None:
        self.capacity = capacity
        self.predecessors = predecessors
        self.next_key = 0
        self.key: Keys = np.full(capacity, -1, np.int64)  # -1: nobody lives there
        self.previous: Keys = np.full(capacity, -1, np.int64)  # key of the block before; -1: none
        self.whole: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        self.sampleable = 0  # items that are whole
        # The key of the sequence whose first frames are in this item, and that dies with it.
        self._last_heir: Keys = np.full(capacity, -1, np.int64)
        self._chains: dict[int, _Chain] = {}

    @property
    def size(self) -> int:
        """Items in use, whole or not."""
        return int(np.count_nonzero(self.key >= 0))

    def item(self, keys: Keys) -> Keys:
        """Where keys [N] live, or lived."""
        return keys % self.capacity

    def is_there(self, keys: Keys) -> NDArray[np.bool_]:
        """Of keys [N], which are there still. -1 never is."""
        there: NDArray[np.bool_] = (keys >= 0) & (self.key[self.item(keys)] == keys)
        return there

    def add(self, chain: int, number: int, count: int) -> Added:
        """Make room for block `number` of a chain, with `count` environments.

        A block that does not follow on its chain's newest one starts the chain anew.

        Raises:
            ValueError: `count` is more than there are items.
        """
        if count > self.capacity:
            raise ValueError(
                f"a block of {count} sequences does not fit into a replay of {self.capacity}"
            )
        before = self._chains.get(chain)
        follows = before is not None and (before.number, len(before.keys)) == (number - 1, count)
        previous = before.keys if before is not None and follows else np.full(count, -1, np.int64)
        keys = np.arange(self.next_key, self.next_key + count)
        retired = self._evict(self.item(keys))
        items = self.item(keys)
        self.next_key += count
        self.key[items] = keys
        self.previous[items] = np.where(self.is_there(previous), previous, -1)
        whole = self._bequeath(keys)
        self._chains[chain] = _Chain(number, keys)
        if len(self._chains) > 2 * self.capacity:
            self._forget_chains()
        return Added(keys, whole, retired)

    def _evict(self, items: Keys) -> Keys:
        """Empty items; return those that are no longer whole, among them."""
        heirs = self._last_heir[items]
        gone = np.union1d(items, self.item(heirs[heirs >= 0]))
        self.sampleable -= int(np.count_nonzero(self.whole[gone]))
        self.whole[gone] = False
        self.key[items] = self.previous[items] = self._last_heir[items] = -1
        return gone

    def _bequeath(self, keys: Keys) -> NDArray[np.bool_]:
        """Settle which of the new sequences are whole, and with whom they die."""
        first = self.hops(keys)[-1]
        whole: NDArray[np.bool_] = first >= 0
        items = self.item(keys[whole])
        self.whole[items] = True
        self.sampleable += len(items)
        self._last_heir[self.item(first[whole])] = keys[whole]
        return whole

    def hops(self, keys: Keys) -> list[Keys]:
        """Keys [N] and their predecessors' [N], P of them, the nearest first; -1 where none is."""
        found = [keys]
        for _ in range(self.predecessors):
            before = np.where(found[-1] >= 0, self.previous[self.item(found[-1])], -1)
            found.append(np.where(self.is_there(before), before, -1))
        return found

    def _forget_chains(self) -> None:
        """Streams that have ended: their newest sequences are gone."""
        self._chains = {
            chain: newest
            for chain, newest in self._chains.items()
            if newest.keys[-1] >= self.next_key - self.capacity
        }

    def restore(self, key: Keys, previous: Keys) -> None:
        """Take over keys and predecessors [capacity] of another life. Its chains have ended.

        What cannot be (a key in a foreign item, one too old to live) is left out.
        """
        items = np.arange(self.capacity)
        self.next_key = int(key.max(initial=-1)) + 1
        lives = (key >= 0) & (self.item(key) == items) & (key >= self.next_key - self.capacity)
        self.key[:] = np.where(lives, key, -1)
        self.previous[:] = np.where(lives & self.is_there(previous), previous, -1)
        self.whole[:], self.sampleable = False, 0
        self._last_heir[:] = -1
        self._chains.clear()
        self._bequeath(self.key[lives])
