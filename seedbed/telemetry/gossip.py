"""Counts of a learner's exchange with its peers."""

from dataclasses import dataclass, field
from typing import ClassVar

from seedbed.runtime.metrics import Metric, counter, documented, gauge


@dataclass
class GossipStats:
    """Written by the training thread, read by telemetry.

    Attributes:
        peers: Learners, this one included. NaN of a single learner.
        alive: Learners that make progress, this one included. NaN of a single learner.
        mixes: Mixings of peers' parameters, or of all gradients, by this process.
        sent: Messages that a peer has received whole.
        sent_bytes: Bytes of parameters sent to peers.
        received: Messages from peers.
        received_bytes: Bytes of parameters received from peers.
        refused: Messages and answers of peers that were refused, because they do not fit this
            learner or hold numbers that are not allowed.
        superseded: Messages that a newer one of the same peer replaced before mixing.
        seconds: Seconds of the training thread for its peers.
        wait_seconds: Seconds in which the training thread waited for a peer.
        update_norm: Length, as a 2-norm, of what the newest update added to the parameters. NaN of
            a single learner.
        is_disconnected: State of the bound: 1 while the graphs among the learners alive are not
            strongly connected, so that nothing bounds how far they drift apart. NaN of a single
            learner.
        waiting: What the exchange waits for, in words.
        distance: Distance, as a 2-norm, between these parameters and the newest ones of a peer, by
            rank; measured every `gossip.distance_every` mixings.
        staleness: Local iterations since a message of a peer, by rank.
    """

    peers: int | None = None
    alive: int | None = None
    mixes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    refused: int = 0
    superseded: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    update_norm: float | None = None
    is_disconnected: bool | None = None
    waiting: str = ""
    distance: dict[int, float] = field(default_factory=dict)
    staleness: dict[int, int] = field(default_factory=dict)

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        gauge("seedbed_gossip_peers", "peers"),
        gauge("seedbed_gossip_peers_alive", "alive"),
        counter("seedbed_gossip_mixes_total", "mixes"),
        counter("seedbed_gossip_sent_total", "sent"),
        counter("seedbed_gossip_sent_bytes_total", "sent_bytes"),
        counter("seedbed_gossip_received_total", "received"),
        counter("seedbed_gossip_received_bytes_total", "received_bytes"),
        counter("seedbed_gossip_refused_total", "refused"),
        counter("seedbed_gossip_superseded_total", "superseded"),
        counter("seedbed_gossip_seconds_total", "seconds"),
        counter("seedbed_gossip_wait_seconds_total", "wait_seconds"),
        gauge("seedbed_gossip_update_norm", "update_norm"),
        gauge("seedbed_gossip_distance", "distance", ("peer",)),
        gauge("seedbed_gossip_staleness_iterations", "staleness", ("peer",)),
        gauge("seedbed_gossip_bound_void", "is_disconnected"),
    )

    @property
    def is_used(self) -> bool:
        """Whether there are several learners."""
        return self.peers is not None

    def begin(self, peers: int) -> None:
        """Begin to count, as one of so many learners."""
        self.peers = self.alive = peers
        self.update_norm, self.is_disconnected = 0.0, False
