"""All-reduce around a ring: a sum that every learner ends up with, bit for bit the same.

Each learner sends to the next one. In n-1 steps every segment of the buffer collects its sum, in
n-1 more it goes around (Patarasuk and Yuan 2009), so each learner sends 2(n-1)/n of the buffer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from seedbed.gossip.layout import Flat


class PeerLost(Exception):
    """A segment did not come in time."""


class Inbox:
    """Segments from the learner before this one. The event loop puts, the training thread takes.

    Attributes:
        streams: how often that learner has connected.
    """

    def __init__(self) -> None:
        self._segments: dict[tuple[int, int], bytes] = {}
        self._changed = threading.Condition()
        self.streams = 0

    def opened(self) -> None:
        """The learner before this one has connected: what its last life sent is of no use."""
        with self._changed:
            self._segments.clear()
            self.streams += 1

    def put(self, update: int, step: int, data: bytes) -> None:
        """Keep a segment."""
        with self._changed:
            self._segments[update, step] = data
            self._changed.notify_all()

    def take(self, update: int, step: int, timeout_s: float) -> bytes | None:
        """A segment, or None after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: (update, step) in self._segments, timeout_s)
            return self._segments.pop((update, step), None)


def ring_sum(
    own: Flat,
    rank: int,
    count: int,
    send: Callable[[int, bytes], None],
    receive: Callable[[int], bytes],
) -> Flat:
    """The sum of everybody's `own` [d].

    Args:
        send: gives (step, segment) to learner rank + 1.
        receive: waits for the segment of a step from learner rank - 1.

    Raises:
        ValueError: a segment has another size than expected.
    """
    total = own.copy()
    bounds = [len(total) * k // count for k in range(count + 1)]

    def segment(k: int) -> Flat:
        k %= count
        return total[bounds[k] : bounds[k + 1]]

    for step in range(2 * (count - 1)):
        # First segment `rank` leaves, then always the one that has just come.
        send(step, segment(rank - step).tobytes())
        data = np.frombuffer(receive(step), np.float32)
        place = segment(rank - step - 1)
        if len(data) != len(place):
            raise ValueError(f"{len(data)} numbers at step {step}, where {len(place)} are expected")
        if step < count - 1:
            place += data
        else:
            place[:] = data
    return total
