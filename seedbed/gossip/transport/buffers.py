"""Buffers between the event loop, which receives, and the training thread, which takes."""

import threading
from collections.abc import Collection
from dataclasses import dataclass

from seedbed.gossip.parameters import FlatParams


@dataclass(frozen=True, eq=False)
class Message:
    """Parameters of a learner after a local update and before mixing.

    Attributes:
        sender: Rank of the learner.
        iteration: Local iteration of the sender.
        values: The parameters [d], which never change.
    """

    sender: int
    iteration: int
    values: FlatParams


class ReceiveBuffer:
    """Receive buffer of Algorithm 1: the newest message of each peer.

    Attributes:
        received: Messages received.
        superseded: Messages that a newer one of the same peer replaced before they were mixed.
    """

    def __init__(self) -> None:
        self._newest: dict[int, Message] = {}
        self._receipts: dict[int, tuple[int, int]] = {}
        self._changed = threading.Condition()
        self.superseded = self.received = 0

    def put(self, message: Message) -> None:
        """Store a message in place of the sender's last one."""
        with self._changed:
            sender = message.sender
            self.superseded += sender in self._newest
            self.received += 1
            self._newest[sender] = message
            self._receipts[sender] = self._receipts.get(sender, (0, 0))[0] + 1, message.iteration
            self._changed.notify_all()

    def take(self, senders: Collection[int]) -> list[Message]:
        """Remove one message of each sender.

        Returns:
            The messages by rank; none while one of them is missing.
        """
        with self._changed:
            if not senders or any(sender not in self._newest for sender in senders):
                return []
            return [self._newest.pop(sender) for sender in sorted(senders)]

    def receipts(self) -> dict[int, tuple[int, int]]:
        """Return each peer's number of messages, and the iteration of the newest one."""
        with self._changed:
            return dict(self._receipts)

    def wait_for(self, sender: int, receipts: int, timeout_s: float) -> bool:
        """Wait until a peer has sent more than `receipts` messages, or for `timeout_s`.

        Args:
            sender: Rank of the peer.
            receipts: Number of its messages that came before.
            timeout_s: Longest wait.

        Returns:
            Whether the message came.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: self._receipts.get(sender, (0, 0))[0] > receipts, timeout_s
            )


def ring_bounds(size: int, count: int) -> list[int]:
    """Return where the segments of the ring begin in what is summed, and its end.

    Args:
        size: Length of what is summed.
        count: Number of learners, which is the number of segments.
    """
    return [size * k // count for k in range(count + 1)]


class SegmentBuffer:
    """Segments of the ring's previous learner that still wait, at most one for each hop.

    Attributes:
        streams: Number of times that the previous learner has connected.
    """

    def __init__(self, rank: int, count: int, size: int) -> None:
        bounds = ring_bounds(size, count)
        # As `ring_sum` takes them: the sender sends its own segment first.
        places = [(rank - hop - 1) % count for hop in range(2 * (count - 1))]
        self._bytes = [4 * (bounds[k + 1] - bounds[k]) for k in places]
        self._segments: dict[tuple[int, int], bytes] = {}
        self._newest: tuple[int, int] | None = None  # of the present stream
        self._changed = threading.Condition()
        self.streams = 0

    @property
    def held(self) -> int:
        """Return the number of segments that wait."""
        return len(self._segments)

    def on_connect(self) -> None:
        """Drop the segments of the last stream, because its process may have restarted."""
        with self._changed:
            self.drop()
            self.streams += 1

    def drop(self) -> None:
        """Drop the segments that wait."""
        self._newest = None
        self._segments.clear()

    def put(self, update: int, hop: int, data: bytes) -> None:
        """Store the segment of a hop.

        Args:
            update: Update that the segment belongs to.
            hop: Number of the hop around the ring, from 0.
            data: Little-endian float32.

        Raises:
            ValueError: The segment has another size, or is not the next one of the stream, or
                those of a whole update wait already.
        """
        hops = len(self._bytes)
        if hop >= hops:
            raise ValueError(f"hop {hop}, and the hops are 0 to {hops - 1}")
        if len(data) != self._bytes[hop]:
            raise ValueError(
                f"{len(data)} bytes at hop {hop}, where {self._bytes[hop]} are expected"
            )
        with self._changed:
            if self._newest is not None:
                before, last = self._newest
                # An update that all learners skip is tried again under the same number.
                next_ones = [(before, last + 1)]
                if last + 1 == hops:
                    next_ones = [(before, 0), (before + 1, 0)]
                if (update, hop) not in next_ones:
                    raise ValueError(
                        f"update {update}, hop {hop} after update {before}, hop {last}"
                    )
            if len(self._segments) == hops:
                raise ValueError(f"{hops} segments wait to be taken, and no more ever do")
            self._newest = update, hop
            self._segments[update, hop] = data
            self._changed.notify_all()

    def take(self, update: int, hop: int, timeout_s: float) -> bytes | None:
        """Remove the segment of a hop.

        Args:
            update: Update that the segment belongs to.
            hop: Number of the hop around the ring, from 0.
            timeout_s: Longest wait.

        Returns:
            The segment; None if it does not come in time.
        """
        with self._changed:
            self._changed.wait_for(lambda: (update, hop) in self._segments, timeout_s)
            return self._segments.pop((update, hop), None)
