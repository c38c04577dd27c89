"""Counts of the bytes between this learner and other pods."""

from typing import ClassVar

from seedbed.runtime.metrics import Metric, counter, documented
from seedbed.telemetry.gossip import GossipStats
from seedbed.telemetry.replay import ReplaySourceStats


class NetworkStats:
    """Written by the event loop's thread, read by telemetry.

    Attributes:
        bytes: Bytes of messages of this process, by the process at the other end (`actor`,
            `learner`, `shard`) and the direction (`received`, `sent`). Bytes of headers are left
            out, and so are actors at a unix socket.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__, counter("seedbed_learner_network_bytes_total", "bytes", ("peer", "direction"))
    )

    def __init__(self, gossip: GossipStats, replay: ReplaySourceStats) -> None:
        self._gossip, self._replay = gossip, replay
        self._received = self._sent = 0

    def on_step(self, received: int, sent: int) -> None:
        """Count the bytes of an actor's step and of the answer."""
        self._received += received
        self._sent += sent

    @property
    def bytes(self) -> dict[tuple[str, str], int]:
        """Bytes by the other end and the direction."""
        gossip, shards = self._gossip, self._replay.buffer
        return {
            ("actor", "received"): self._received,
            ("actor", "sent"): self._sent,
            ("learner", "received"): gossip.received_bytes,
            ("learner", "sent"): gossip.sent_bytes,
            ("shard", "received"): shards.received_bytes if shards else 0,
            ("shard", "sent"): shards.sent_bytes if shards else 0,
        }
