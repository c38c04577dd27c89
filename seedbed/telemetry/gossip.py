"""Counts of a learner's exchange with its peers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from seedbed.runtime.metrics import Metric, counter, gauge


@dataclass
class GossipStats:
    """Written by the training thread, read by telemetry. All zero without peers.

    Attributes:
        peers: Learners, this one included; 0 without peers.
        alive: Learners that make progress, this one included.
        seconds: Time of the training thread for its peers, waiting included.
        is_disconnected: The graphs are no longer strongly connected.
        waiting: What the exchange waits for, in words.
        distance: By rank, the 2-norm between the parameters and the newest ones of a peer.
        staleness: By rank, local iterations since the newest message of a peer.
    """

    peers: int = 0
    alive: int = 0
    mixes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    superseded: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    update_norm: float = 0.0
    is_disconnected: bool = False
    waiting: str = ""
    distance: dict[int, float] = field(default_factory=dict)
    staleness: dict[int, int] = field(default_factory=dict)

    METRICS: ClassVar[tuple[Metric, ...]] = (
        gauge(
            "seedbed_gossip_peers",
            "Learners, this one included. NaN of a single learner.",
            lambda s: s.peers or math.nan,
        ),
        gauge(
            "seedbed_gossip_peers_alive",
            "Learners that make progress, this one included. NaN of a single learner.",
            lambda s: s.alive if s.peers else math.nan,
        ),
        counter(
            "seedbed_gossip_mixes_total",
            "Mixings of peers' parameters, or of all gradients, by this process.",
            "mixes",
        ),
        counter("seedbed_gossip_sent_total", "Messages that a peer has received whole.", "sent"),
        counter(
            "seedbed_gossip_sent_bytes_total", "Bytes of parameters sent to peers.", "sent_bytes"
        ),
        counter("seedbed_gossip_received_total", "Messages from peers.", "received"),
        counter(
            "seedbed_gossip_received_bytes_total",
            "Bytes of parameters received from peers.",
            "received_bytes",
        ),
        counter(
            "seedbed_gossip_superseded_total",
            "Messages that a newer one of the same peer replaced before mixing.",
            "superseded",
        ),
        counter(
            "seedbed_gossip_seconds_total",
            "Seconds of the training thread for its peers.",
            "seconds",
        ),
        counter(
            "seedbed_gossip_wait_seconds_total",
            "Seconds in which the training thread waited for a peer.",
            "wait_seconds",
        ),
        gauge(
            "seedbed_gossip_update_norm",
            "Length, as a 2-norm, of what the newest update added to the parameters. NaN of a "
            "single learner.",
            lambda s: s.update_norm if s.peers else math.nan,
        ),
        gauge(
            "seedbed_gossip_distance",
            "Distance, as a 2-norm, between these parameters and the newest ones of a peer, by "
            "rank; measured every `gossip.distance_every` mixings.",
            lambda s: {str(rank): x for rank, x in s.distance.items()},
            "peer",
        ),
        gauge(
            "seedbed_gossip_staleness_iterations",
            "Local iterations since a message of a peer, by rank.",
            lambda s: {str(rank): x for rank, x in s.staleness.items()},
            "peer",
        ),
        gauge(
            "seedbed_gossip_bound_void",
            "State of the bound: 1 while the graphs among the learners alive are not strongly "
            "connected, so that nothing bounds how far they drift apart. NaN of a single learner.",
            lambda s: float(s.is_disconnected) if s.peers else math.nan,
        ),
    )

    def as_dict(self) -> dict[str, float]:
        """Return the columns of progress.csv and status.json; empty without peers."""
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
            "gossip_bound_void": float(self.is_disconnected),
            "gossip_distance": max(self.distance.values(), default=0.0),
            "gossip_staleness": max(self.staleness.values(), default=0),
        }
