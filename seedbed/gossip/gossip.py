"""Gossip: Algorithm 1 of Assran et al. 2019, for any agent.

Only parameters are exchanged. Each learner keeps its own optimizer's state: what has come from a
peer has already been through the peer's.
"""

from __future__ import annotations

import logging
import time

from seedbed.backends.protocol import Rows, Trainer
from seedbed.config.gossip import Gossip
from seedbed.gossip.exchange import ShuttingDown
from seedbed.gossip.layout import Layout
from seedbed.gossip.outbox import Mixing, Outbox, Update
from seedbed.gossip.peers import Peers
from seedbed.gossip.records import Records
from seedbed.gossip.topology import Topology
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from seedbed.telemetry.gossip import GossipNumbers
from seedbed.types import Tensor

log = logging.getLogger(__name__)

_POLL_S = 0.1
_UNHEARD = 10_000  # more than anybody makes between two beats


class GossipExchange:
    """See `exchange.Exchange`.

    Attributes:
        iteration: local iterations, over all restarts.
    """

    def __init__(
        self,
        settings: Gossip,
        topology: Topology,
        trainer: Trainer,
        layout: Layout,
        peers: Peers,
        outbox: Outbox,
        records: Records,
        numbers: GossipNumbers,
        threads: Threads,
    ) -> None:
        self._settings = settings
        self._whole = self._topology = topology
        self._trainer, self._layout = trainer, layout
        self._peers, self._members = peers, peers.members
        self._rank = peers.members.rank
        self._outbox, self._records, self._numbers = outbox, records, numbers
        self._threads, self._stopping = threads, threads.stopping
        self.iteration = records.last_iteration
        self._alive = frozenset(range(peers.members.count))
        self._heard = dict.fromkeys(peers.links, self.iteration)  # when a peer was last heard,
        self._receipts: dict[int, int] = {}  # and how often until then,
        self._latest: dict[int, int] = {}  # and the peer's iteration then
        self._active_at = time.monotonic()
        self._behind = False  # a peer that has sent nothing yet has, or may have, more updates

    # --- joining ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with a peer's parameters, where one trains already (see the protocol)."""
        self._peers.start()
        self._outbox.begin(self._trainer.params())
        self._records.start(self.iteration)
        deadline = time.monotonic() + self._settings.deadline_s
        while not self._adopt() and self._behind and time.monotonic() < deadline:
            # All are being started, and this one has less than the others: parameters of its own
            # would undo theirs.
            if self._stopping.wait(_POLL_S):
                raise ShuttingDown
        self._active_at = time.monotonic()
        self._threads.start("outbox", lambda: self._outbox.run(self._stopping))

    def _adopt(self) -> bool:
        """Take the parameters of the first peer that has any, in-peers first; whether one has."""
        self._behind = False
        near = self._topology.in_peers(self._rank, self.iteration + 1)
        for peer in sorted(self._peers.links, key=lambda peer: (peer not in near, peer)):
            try:
                member, known, message = self._peers.fetch(peer)
            except ValueError as error:
                raise SeedbedError(
                    ExitCode.CONFIG, f"learner {peer}'s parameters do not fit: {error}"
                ) from error
            own = self._peers.own().updates
            # Of one that does not answer yet nobody knows; who has nothing can but wait for it.
            self._behind |= own == 0 if member is None else member.updates > own
            if self.iteration == 0 and known:
                # Its records are lost, and no version may be used twice.
                self.iteration = known + _UNHEARD
                self._heard = dict.fromkeys(self._peers.links, self.iteration)
            if message is not None:
                self._records.adopt(message, self.iteration)
                self._trainer.set_params(self._layout.split(message.values))
                self._outbox.begin(self._trainer.params())
                return True
        return False

    def resync_if_left_behind(self) -> bool:
        """Where the peers have gone on without this learner, because it had no actors or hung,
        take a peer's parameters.
        """
        away_s = time.monotonic() - self._active_at
        if away_s <= self._settings.deadline_s:
            return False
        self._outbox.settle()
        adopted = self._adopt()
        self._active_at = time.monotonic()
        if adopted:
            log.warning(
                "no update for %.0f s, so the other learners went on without this one "
                "(gossip.deadline_s is %g): it has taken a peer's parameters. If this happens "
                "again and again, raise it above the time of an update",
                *(away_s, self._settings.deadline_s),
            )
        return adopted

    # --- an iteration ----------------------------------------------------------------------

    def step(self, batch: Rows) -> dict[str, Tensor]:
        """See the protocol."""
        every = self._settings.gradients_every
        if every and (self.iteration + 1) % every == 0:
            outputs, gradients = self._trainer.gradients(batch)
            outputs = {**outputs, "gradient_norm": self._trainer.apply(gradients)}
        else:
            outputs, gradients = self._trainer.step(batch), []
        self._exchange(gradients)
        return outputs

    def after_update(self) -> None:
        """See the protocol."""
        self._exchange([])

    def _exchange(self, gradients: list[Tensor]) -> None:
        """Broadcast, wait where τ says so, mix (Algorithm 1, lines 5 to 8)."""
        if self.resync_if_left_behind():  # it hung within the update, which nobody is to get
            return
        updated, updated_at = self._trainer.params(), time.time()
        started = time.perf_counter()
        self._look_around()
        self.iteration += 1
        to = self._topology.out_peers(self._rank, self.iteration)
        update = Update(self.iteration, updated, updated_at, to, gradients)
        self._hear()
        if self._settings.staleness is None:
            mixing = self._mix()  # first: the outbox's thread would take its processor
            self._outbox.put(update, self._stopping)
        else:
            # It sends before it waits: with τ = 0 all would wait for each other.
            self._outbox.put(update, self._stopping)
            self._wait_for_stale()
            mixing = self._mix()
        if mixing is not None:
            self._outbox.put(mixing, self._stopping)
        self._active_at = time.monotonic()
        self._count(time.perf_counter() - started)

    def _mix(self) -> Mixing | None:
        of = self._topology.in_peers(self._rank, self.iteration)
        messages = self._peers.mailbox.take(of)
        if not messages:
            return None
        weights = [of[message.sender] for message in messages]
        values = [message.values for message in messages]
        self._trainer.mix(1 - sum(weights), list(zip(weights, values, strict=True)))
        self._numbers.mixes += 1
        return Mixing(self.iteration, self._trainer.params(), time.time(), messages, weights)

    # --- peers -----------------------------------------------------------------------------

    def _hear(self) -> None:
        for peer, (count, iteration) in self._peers.mailbox.receipts().items():
            if count != self._receipts.get(peer):
                # Where graphs take turns a peer sends to this learner in some of its iterations
                # only. Then a message from ahead is good for this learner's next iteration too, or
                # with a small τ all could wait for each other. In a single graph they cannot:
                # whoever waits has sent its newest message after it heard its peer's newest.
                turns = len(self._topology.graphs) > 1
                early = turns and iteration - self._latest.get(peer, iteration) > 1
                self._receipts[peer], self._latest[peer] = count, iteration
                self._heard[peer] = self.iteration + early

    def _wait_for_stale(self) -> None:
        """Where an in-peer has sent nothing for more than τ iterations, wait until it does, or
        until it counts as dead.
        """
        tau = self._settings.staleness
        if tau is None:
            return
        for peer in self._topology.in_peers(self._rank, self.iteration):
            if self.iteration - self._heard[peer] > tau:
                self._wait_for(peer)

    def _wait_for(self, peer: int) -> None:
        began = time.perf_counter()
        self._numbers.waiting = f"a message of learner {peer}, as gossip.staleness asks"
        try:
            heard = self._receipts.get(peer, 0)
            while not self._peers.mailbox.wait_for(peer, heard, _POLL_S):
                if self._stopping.is_set():
                    raise ShuttingDown
                waited = time.perf_counter() - began
                if peer not in self._members.alive() or waited > self._settings.deadline_s:
                    self._heard[peer] = self.iteration  # not to wait for it at every iteration
                    return
            self._hear()
        finally:
            self._numbers.waiting = ""
            self._numbers.wait_seconds += time.perf_counter() - began

    def _look_around(self) -> None:
        """Close the graphs around those that have died, open them to those that are back."""
        alive = self._members.alive()
        if alive != self._alive:
            self._say(alive)
            self._alive = alive
            self._topology = self._whole.among(alive)
            void = self._topology.window is None
            self._records.graph(self.iteration, sorted(alive), void)
            self._numbers.void = void
            if void:
                log.warning(
                    "the graphs among learners %s no longer reach everybody: nothing bounds how "
                    "far they drift apart until the others are back",
                    sorted(alive),
                )
            self._heard.update(dict.fromkeys(alive, self.iteration))

    def _say(self, alive: frozenset[int]) -> None:
        for peer in sorted(self._alive - alive):
            log.warning(
                "learner %d has made no progress for %g s and counts as dead: the graph closes "
                "around it",
                *(peer, self._settings.deadline_s),
            )
        for peer in sorted(alive - self._alive):
            log.info("learner %d is back", peer)

    def _count(self, seconds: float) -> None:
        numbers, mailbox, links = self._numbers, self._peers.mailbox, self._peers.links.values()
        numbers.seconds += seconds
        numbers.alive = len(self._alive)
        numbers.sent = sum(link.sent for link in links)
        numbers.sent_bytes = sum(link.sent_bytes for link in links)
        numbers.received, numbers.superseded = mailbox.received, mailbox.superseded
        numbers.received_bytes = mailbox.received * 4 * self._layout.size
        near = self._topology.in_peers(self._rank, self.iteration)
        numbers.staleness = {peer: max(0, self.iteration - self._heard[peer]) for peer in near}

    def close(self) -> None:
        """See the protocol."""
        self._peers.close()
