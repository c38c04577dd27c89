"""Buffers between the event loop, which receives, and the training thread, which takes."""

from __future__ import annotations

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

        Args:
            senders: Ranks of the peers.

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


class SegmentBuffer:
    """Segments of the ring's previous learner.

    Attributes:
        streams: Number of times that the previous learner has connected.
    """

    def __init__(self) -> None:
        self._segments: dict[tuple[int, int], bytes] = {}
        self._changed = threading.Condition()
        self.streams = 0

    def on_connect(self) -> None:
        """Drop the segments of the last stream, because its process may have restarted."""
        with self._changed:
            self._segments.clear()
            self.streams += 1

    def put(self, update: int, hop: int, data: bytes) -> None:
        """Store the segment of a hop.

        Args:
            update: Update that the segment belongs to.
            hop: Number of the hop around the ring, from 0.
            data: Little-endian float32.
        """
        with self._changed:
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
