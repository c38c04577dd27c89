"""What is counted of a learner's exchange with its peers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GossipNumbers:
    """Written by the training thread, read by telemetry. All zero, and `peers` 0, without peers."""

    peers: int = 0  # learners, this one included
    alive: int = 0
    mixes: int = 0
    sent: int = 0  # messages
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    superseded: int = 0  # replaced by a newer one before they were mixed
    seconds: float = 0.0  # of the training thread
    wait_seconds: float = 0.0  # of those, for a peer
    update_norm: float = 0.0  # 2-norm of what the newest update has added
    void: bool = False  # the graphs are no longer strongly connected
    waiting: str = ""  # what it waits for, in words
    distance: dict[int, float] = field(default_factory=dict)  # by rank, 2-norm
    staleness: dict[int, int] = field(default_factory=dict)  # by rank, local iterations

    def shown(self) -> dict[str, float]:
        """By name, for a row of progress.csv and status.json; empty without peers."""
        if not self.peers:
            return {}
        return {
            "gossip_peers": self.peers,
            "gossip_peers_alive": self.alive,
            "gossip_mixes": self.mixes,
            "gossip_sent": self.sent,
            "gossip_sent_bytes": self.sent_bytes,
            "gossip_received": self.received,
            "gossip_superseded": self.superseded,
            "gossip_seconds": self.seconds,
            "gossip_wait_seconds": self.wait_seconds,
            "gossip_update_norm": self.update_norm,
            "gossip_bound_void": float(self.void),
            "gossip_distance": max(self.distance.values(), default=0.0),
            "gossip_staleness": max(self.staleness.values(), default=0),
        }
