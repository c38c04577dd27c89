"""The receive buffer: the newest message of each peer (Algorithm 1)."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass

from seedbed.gossip.layout import Flat


@dataclass(frozen=True, eq=False)
class Message:
    """A peer's parameters, as its local update left them, before it mixed."""

    sender: int
    iteration: int
    values: Flat


class Mailbox:
    """The event loop puts, the training thread takes.

    Attributes:
        superseded: messages that a newer one of the same peer replaced before they were mixed.
        received: messages.
    """

    def __init__(self) -> None:
        self._newest: dict[int, Message] = {}
        self._changed = threading.Condition()
        self._receipts: dict[int, int] = {}
        self._latest: dict[int, int] = {}
        self.superseded = self.received = 0

    def put(self, message: Message) -> None:
        """Keep a message, in the place of the one before."""
        with self._changed:
            self.superseded += message.sender in self._newest
            self.received += 1
            self._receipts[message.sender] = self._receipts.get(message.sender, 0) + 1
            self._newest[message.sender] = message
            self._latest[message.sender] = message.iteration
            self._changed.notify_all()

    def take(self, senders: Collection[int]) -> list[Message]:
        """One message of each of `senders`, and forget them; none if one of them is missing."""
        with self._changed:
            if not senders or any(sender not in self._newest for sender in senders):
                return []
            return [self._newest.pop(sender) for sender in sorted(senders)]

    def receipts(self) -> dict[int, tuple[int, int]]:
        """How many messages each peer has sent, and the iteration of its newest."""
        with self._changed:
            return {peer: (n, self._latest[peer]) for peer, n in self._receipts.items()}

    def wait_for(self, sender: int, receipts: int, timeout_s: float) -> bool:
        """Whether more than `receipts` messages of `sender` have come, at the latest after
        `timeout_s`.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: self._receipts.get(sender, 0) > receipts, timeout_s
            )
