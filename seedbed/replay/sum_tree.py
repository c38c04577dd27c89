"""Sum tree: draws items in proportion to their weights, and sets weights, many at a time.

Schaul et al. 2016, "Prioritized Experience Replay", appendix B.2.1. A complete binary tree in one
array: the root at 1, the children of i at 2i and 2i + 1, the leaves at the end. Sums are float64
and are always added anew from both children, so that a billion updates leave no drift.
"""

import numpy as np
from numpy.typing import NDArray

# Items are neighbours, as those of a chunk, where so many times as many lie between the first one
# and the last one: all nodes between are added, without an index.
_SPREAD = 8
# Nodes of a level above which each is added once. Fewer are added as often as they are named,
# which gives the same sum, because to find them takes longer.
_MANY = 1024


class SumTree:
    """Weights of items 0 .. capacity-1, all 0 at first. Not thread-safe."""

    def __init__(self, capacity: int) -> None:
        """Make room for items.

        Args:
            capacity: Items, at least 1.

        Raises:
            ValueError: `capacity` is below 1.
        """
        if capacity < 1:
            raise ValueError(f"capacity {capacity} must be at least 1")
        self._depth = (capacity - 1).bit_length()
        self._leaves = 1 << self._depth
        self._sums: NDArray[np.float64] = np.zeros(2 * self._leaves, np.float64)

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._sums[1])

    def weights(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights [N] float64 of items.

        Args:
            items: [N], below the capacity.
        """
        return self._sums[self._leaves + items]

    def set(self, items: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
        """Set weights. Where an item is named twice, the last weight counts.

        Args:
            items: [N], below the capacity.
            weights: [N], finite and not negative.
        """
        if not len(items):
            return
        nodes, sums = self._leaves + items, self._sums
        sums[nodes] = weights
        first, last = int(nodes.min()), int(nodes.max())
        if last - first < _SPREAD * len(nodes):
            for _ in range(self._depth):
                first, last = first >> 1, last >> 1
                children = sums[2 * first : 2 * last + 2]
                np.add(children[::2], children[1::2], out=sums[first : last + 1])
            return
        for _ in range(self._depth):
            nodes = nodes >> 1
            if len(nodes) > _MANY:
                nodes = np.unique(nodes)
            sums[nodes] = sums[2 * nodes] + sums[2 * nodes + 1]

    def draw(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw items [N], each with probability weight / total.

        Args:
            uniform: [N] numbers in [0, 1).

        Raises:
            ValueError: All weights are 0.
        """
        if not self._sums[1] > 0:
            raise ValueError("nothing can be drawn: the sum of all weights is 0")
        # What is left of each number while its node descends from the root.
        rest = np.asarray(uniform, np.float64) * self._sums[1]
        nodes = np.ones(rest.shape, np.int64)
        for _ in range(self._depth):
            left = self._sums[2 * nodes]
            # Rounding may leave a number at the very end: an empty subtree is never entered.
            right = (rest >= left) & (self._sums[2 * nodes + 1] > 0)
            rest = np.where(right, rest - left, rest)
            nodes = 2 * nodes + right
        return nodes - self._leaves
