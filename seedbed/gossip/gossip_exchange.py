"""Gossip: Algorithm 1 of Assran et al. 2019 (GALA, arXiv:1906.04585), for any agent.

Only parameters are exchanged. Each learner keeps the state of its own optimizer, because a peer's
parameters have already passed through the peer's optimizer.
"""

import logging
import time
from collections.abc import Callable

from typing_extensions import override

from seedbed.backends.tables import TensorDict
from seedbed.config.gossip import Gossip
from seedbed.gossip.exchange import LocalLearner, PeerExchange, ShuttingDown
from seedbed.gossip.gossip_log import GossipLog
from seedbed.gossip.parameters import norm_of
from seedbed.gossip.publisher import Publisher
from seedbed.gossip.topology import make_topology
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.types import Tensor

log = logging.getLogger(__name__)

_POLL_S = 0.1
# More local iterations than any learner makes between two heartbeats.
_UNREPORTED_ITERATIONS = 10_000


class GossipExchange(PeerExchange):
    """Asynchronous mixing with the in-peers of a graph.

    Args:
        settings: As `PeerExchange`.
        learner: As `PeerExchange`.
        transport: As `PeerExchange`.
        log: Log of this learner's gossip, whose local iterations are continued.
    """

    def __init__(
        self, settings: Gossip, learner: LocalLearner, transport: GossipTransport, log: GossipLog
    ) -> None:
        super().__init__(settings, learner, transport)
        self._log = log
        self.publisher = Publisher(learner.threads)
        self._rank = self._membership.rank
        self._full_topology = self._topology = make_topology(settings)
        self._alive = frozenset(range(settings.replicas))
        self._membership.iteration = log.last_iteration
        # By peer: local iteration of this learner at which the peer's newest message came.
        self._heard_at = dict.fromkeys(transport.clients, self.iteration)
        # By peer: number of messages, and iteration of the newest one, at that time.
        self._receipts: dict[int, tuple[int, int]] = {}
        self._active_at = time.monotonic()
        # Whether a peer that has broadcast nothing yet has, or may have, more updates.
        self._is_behind = False

    @property
    def iteration(self) -> int:
        """Local iterations, over all restarts."""
        return self._membership.iteration

    # --- start -----------------------------------------------------------------------------

    @override
    def start(self) -> None:
        """Connect, and adopt a peer's parameters if a peer trains already."""
        params = self._learner.to_host(self._trainer.params())
        self._transport.own_norm = norm_of(params)
        self._transport.start()
        self._log.on_start(params, self.iteration)
        deadline = time.monotonic() + self._settings.deadline_s
        # While all learners start, one that is behind waits for the others, because its own
        # parameters would undo what they have learned.
        while not self._adopt() and self._is_behind and time.monotonic() < deadline:
            if self._stopping.wait(_POLL_S):
                raise ShuttingDown
        self._active_at = time.monotonic()
        self._learner.threads.start("publisher", self.publisher.run)

    def _adopt(self) -> bool:
        """Adopt the parameters of the first peer that has broadcast any, in-peers first."""
        self._is_behind = False
        in_peers = self._topology.in_peers(self._rank, self.iteration + 1)
        for peer in sorted(self._transport.clients, key=lambda peer: (peer not in in_peers, peer)):
            try:
                fetched = self._transport.clients[peer].fetch()
                if fetched.message is not None:
                    self._transport.check_norm(fetched.message.values)
            except ValueError as error:
                self._transport.clients[peer].refused += 1
                log.warning("learner %d's answer is refused: %s", peer, error)
                continue
            # A peer that does not answer may be ahead. Only a learner without any update waits
            # for it.
            own = self._transport.heartbeat().updates
            status, message = fetched.status, fetched.message
            self._is_behind |= own == 0 if status is None else status.updates > own
            if self.iteration == 0 and fetched.highest_iteration:
                # The log is lost, and no version may be used twice.
                self._membership.iteration = fetched.highest_iteration + _UNREPORTED_ITERATIONS
                self._heard_at = dict.fromkeys(self._transport.clients, self.iteration)
            if message is not None:
                self._transport.own_norm = norm_of(message.values)
                self._log.on_adopt(message, self.iteration)
                self._trainer.set_params(self._learner.layout.split(message.values))
                return True
        return False

    @override
    def resync_if_left_behind(self) -> bool:
        """Adopt a peer's parameters if this learner made no update for `deadline_s`."""
        away_s = time.monotonic() - self._active_at
        if away_s <= self._settings.deadline_s:
            return False
        self.publisher.flush()
        adopted = self._adopt()
        self._active_at = time.monotonic()
        if adopted:
            log.warning(
                "no update for %.0f s, so the other learners continued without it "
                "(gossip.deadline_s is %g): it has taken a peer's parameters. If this happens "
                "again and again, raise it above the time of an update",
                away_s,
                self._settings.deadline_s,
            )
        return adopted

    # --- iteration -------------------------------------------------------------------------

    @override
    def step(self, batch: TensorDict) -> dict[str, Tensor]:
        """Make an update with a batch and exchange (Algorithm 1, lines 4 to 8)."""
        every = self._settings.gradients_every
        if every and (self.iteration + 1) % every == 0:
            outputs, gradients = self._trainer.gradients(batch)
            outputs = {**outputs, "gradient_norm": self._trainer.apply(gradients)}
        else:
            outputs, gradients = self._trainer.step(batch), []
        self._exchange(gradients)
        return outputs

    @override
    def after_update(self) -> None:
        self._exchange([])

    def _exchange(self, gradients: list[Tensor]) -> None:
        """Broadcast, wait if τ demands it, and mix (Algorithm 1, lines 5 to 8).

        The publisher's thread copies the parameters to the host. On the device they never change.
        """
        # An update that took longer than the deadline is dropped.
        if self.resync_if_left_behind():
            return
        params, updated_at = self._trainer.params(), time.time()
        started = time.perf_counter()
        self._update_topology()
        self._membership.iteration += 1
        iteration = self.iteration
        receivers = self._topology.out_peers(self._rank, iteration)

        def publish() -> None:
            values = self._learner.to_host(params)
            # Log first: after a restart no version may be used twice, and each one that a peer
            # mixes must be in a log. This also raises DIVERGED before any peer receives it.
            self._log.on_update(values, iteration, updated_at)
            self._transport.broadcast(Message(self._rank, iteration, values), receivers)
            if gradients:
                self._log.on_gradient(iteration, self._learner.to_host(gradients))

        self._note_receipts()
        if self._settings.staleness is None:
            # Mix first, because the publisher would take this thread's processor.
            log_mixing = self._mix()
            self.publisher.put(publish)
        else:
            # Broadcast first: with τ = 0 all learners would wait for each other.
            self.publisher.put(publish)
            self._wait_for_stale_peers(self._settings.staleness)
            log_mixing = self._mix()
        if log_mixing is not None:
            self.publisher.put(log_mixing)
        self._active_at = time.monotonic()
        self._update_stats(time.perf_counter() - started)

    def _mix(self) -> Callable[[], None] | None:
        """Average with the in-peers' messages, if there is one of each (lines 6 and 7).

        Returns:
            Logs the mixing, in the publisher's thread; None without one.
        """
        in_peers = self._topology.in_peers(self._rank, self.iteration)
        messages = self._transport.receive_buffer.take(in_peers)
        if not messages:
            return None
        weights = [in_peers[message.sender] for message in messages]
        values = [message.values for message in messages]
        self._trainer.mix(1 - sum(weights), list(zip(weights, values, strict=True)))
        self.stats.mixes += 1
        params, iteration, time_s = self._trainer.params(), self.iteration, time.time()
        return lambda: self._log.on_mix(
            self._learner.to_host(params), iteration, messages, weights, time_s
        )

    # --- staleness -------------------------------------------------------------------------

    def _note_receipts(self) -> None:
        """Record at which local iteration each peer's newest message came."""
        for peer, (count, iteration) in self._transport.receive_buffer.receipts().items():
            seen, before = self._receipts.get(peer, (0, iteration))
            if count != seen:
                # Where graphs take turns, a peer sends to this learner in some of its iterations
                # only. A message from ahead then counts for this learner's next iteration too,
                # or all could wait for each other at a small τ. In a single graph they cannot: a
                # waiting learner has sent its newest message after its peer's newest one came.
                turns = len(self._topology.graphs) > 1
                from_ahead = turns and iteration - before > 1
                self._receipts[peer] = count, iteration
                self._heard_at[peer] = self.iteration + from_ahead

    def _wait_for_stale_peers(self, tau: int) -> None:
        """Wait for each in-peer whose newest message is more than τ local iterations old."""
        for peer in self._topology.in_peers(self._rank, self.iteration):
            if self.iteration - self._heard_at[peer] > tau:
                self._wait_for(peer)

    def _wait_for(self, peer: int) -> None:
        """Wait for a message of `peer`, until it no longer counts as alive or the deadline."""
        began = time.perf_counter()
        self.stats.waiting = f"a message of learner {peer}, as gossip.staleness asks"
        receipts = self._receipts.get(peer, (0, 0))[0]
        try:
            while not self._transport.receive_buffer.wait_for(peer, receipts, _POLL_S):
                if self._stopping.is_set():
                    raise ShuttingDown
                waited_s = time.perf_counter() - began
                if peer not in self._membership.alive() or waited_s > self._settings.deadline_s:
                    # Do not wait for this peer again at every iteration.
                    self._heard_at[peer] = self.iteration
                    return
            self._note_receipts()
        finally:
            self.stats.waiting = ""
            self.stats.wait_seconds += time.perf_counter() - began

    # --- membership ------------------------------------------------------------------------

    def _update_topology(self) -> None:
        """Restrict the graphs to the learners that are alive now."""
        alive = self._membership.alive()
        if alive == self._alive:
            return
        for peer in sorted(self._alive - alive):
            log.warning(
                "learner %d has made no progress for %g s (gossip.deadline_s), or its parameters "
                "are refused: the graph closes around it",
                peer,
                self._settings.deadline_s,
            )
        for peer in sorted(alive - self._alive):
            log.info("learner %d is back", peer)
        self._alive = alive
        self._topology = self._full_topology.restricted_to(alive)
        is_disconnected = self._topology.window is None
        self._log.on_graph(self.iteration, sorted(alive), is_disconnected)
        self.stats.is_disconnected = is_disconnected
        if is_disconnected:
            log.warning(
                "the graphs among learners %s no longer lead from every one to every other: their "
                "distance is unbounded until the other learners are back",
                sorted(alive),
            )
        self._heard_at.update(dict.fromkeys(alive, self.iteration))

    def _update_stats(self, seconds: float) -> None:
        stats, received = self.stats, self._transport.receive_buffer
        clients = self._transport.clients.values()
        stats.seconds += seconds
        stats.alive = len(self._alive)
        stats.sent = sum(client.sent for client in clients)
        stats.sent_bytes = sum(client.sent_bytes for client in clients)
        stats.received, stats.superseded = received.received, received.superseded
        stats.refused = self._transport.refused
        stats.received_bytes = received.received * 4 * self._learner.layout.size
        in_peers = self._topology.in_peers(self._rank, self.iteration)
        stats.staleness = {peer: max(0, self.iteration - self._heard_at[peer]) for peer in in_peers}
