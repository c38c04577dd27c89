"""Sum around a ring, bit for bit the same on every learner (Patarasuk and Yuan 2009).

Each learner sends to the next one. In n − 1 hops every segment of the buffer collects its sum, in
n − 1 more hops the sums go around, so each learner sends 2(n − 1)/n of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seedbed.gossip.parameters import FlatParams


def ring_sum(
    own: FlatParams,
    rank: int,
    count: int,
    send: Callable[[int, bytes], None],
    receive: Callable[[int], bytes],
) -> FlatParams:
    """Return the sum of all learners' `own` [d].

    Args:
        own: Terms [d] of this learner.
        rank: Rank of this learner.
        count: Number of learners.
        send: Sends (hop, segment) to learner rank + 1.
        receive: Waits for the segment of a hop from learner rank − 1.

    Raises:
        ValueError: A segment does not have the expected size.
    """
    total = own.copy()
    bounds = [len(total) * k // count for k in range(count + 1)]

    def segment(k: int) -> FlatParams:
        k %= count
        return total[bounds[k] : bounds[k + 1]]

    for hop in range(2 * (count - 1)):
        # Send segment `rank` first, and then always the one that has just come.
        send(hop, segment(rank - hop).tobytes())
        data = np.frombuffer(receive(hop), np.float32)
        place = segment(rank - hop - 1)
        if len(data) != len(place):
            raise ValueError(f"{len(data)} numbers at hop {hop}, where {len(place)} are expected")
        if hop < count - 1:
            place += data
        else:
            place[:] = data
    return total
