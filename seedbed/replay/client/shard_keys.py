"""Keys of a sharded replay: a shard's own key, and the incarnation that assigned it."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

# Bits of the shard's own key; the number of the incarnation is above them. 2^44 sequences take 500
# years at 1,000 a second, and 2^19 incarnations are more than a run ever starts.
_KEY_BITS = 44


class ShardKeys:
    """Numbers of all incarnations of all shards that have sent sequences."""

    def __init__(self) -> None:
        # The number of each (shard, incarnation), in the order of appearance.
        self._numbers: dict[tuple[int, int], int] = {}

    def join(self, shard: int, incarnation: int, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys [N] of the sharded replay.

        Args:
            shard: Index of the shard.
            incarnation: Incarnation of the shard.
            own: [N], the shard's keys.
        """
        number = self._numbers.setdefault((shard, incarnation), len(self._numbers))
        return own | number << _KEY_BITS

    def split(
        self, keys: NDArray[np.int64]
    ) -> Iterator[tuple[int, int, NDArray[np.bool_], NDArray[np.int64]]]:
        """Yield shard, incarnation, which of the keys are theirs [N], and the shard's own keys.

        Keys that `join` has not returned are in none of the parts.

        Args:
            keys: [N].
        """
        incarnations, own = list(self._numbers), keys & (1 << _KEY_BITS) - 1
        known = (keys >= 0) & (keys >> _KEY_BITS < len(incarnations))
        for number in np.unique(keys[known] >> _KEY_BITS).tolist():
            which = known & (keys >> _KEY_BITS == number)
            yield *incarnations[number], which, own[which]
