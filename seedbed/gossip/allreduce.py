"""All-reduce: one update from the gradients of all learners, so that all stay equal.

Each gradient counts as many times as its batch has real transitions. So n learners of b
environments make the update of one learner of n·b environments (Assran et al. 2019, footnote 2).
"""

import time
from collections.abc import Callable

import numpy as np
from typing_extensions import override

from seedbed.backends.tables import TensorDict
from seedbed.config.gossip import Gossip
from seedbed.gossip.exchange import MEET_S, LocalLearner, PeerExchange, ShuttingDown
from seedbed.gossip.gossip_log import GossipLog
from seedbed.gossip.parameters import FlatParams
from seedbed.gossip.transport.buffers import ring_bounds
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.types import Tensor

_POLL_S = 0.1


class AllReduceExchange(PeerExchange):
    """Synchronous sum of all learners' gradients.

    Args:
        settings: As `PeerExchange`.
        learner: As `PeerExchange`.
        transport: As `PeerExchange`.
        log: Log of the gradients; None if none are kept.
    """

    def __init__(
        self,
        settings: Gossip,
        learner: LocalLearner,
        transport: GossipTransport,
        log: GossipLog | None = None,
    ) -> None:
        super().__init__(settings, learner, transport)
        self._counters, self._log = learner.counters, log
        assert transport.ring is not None
        self._ring = transport.ring

    # --- start -----------------------------------------------------------------------------

    @override
    def start(self) -> None:
        """Wait for all learners; adopt the state of the one with the most updates."""
        self._transport.start()
        deadline = time.monotonic() + MEET_S
        ranks, has_adopted = range(self._membership.count), False
        while True:
            heard = self._membership.peers_heard()
            missing = sorted(set(ranks) - {self._membership.rank, *heard})
            updates = {status.updates for status in heard.values()}
            is_equal = not missing and updates == {self._counters.updates}
            if is_equal and self._ring.connected and self._transport.segment_buffer.streams:
                break
            self._learner.answer_state_requests()
            self.stats.waiting = (
                f"learners {', '.join(map(str, missing))} to come"
                if missing
                else "all learners to be at the same update"
            )
            if self._stopping.wait(_POLL_S):
                raise ShuttingDown
            if time.monotonic() > deadline:
                raise SeedbedError(
                    ExitCode.PEERS_UNREACHABLE,
                    f"waited {MEET_S:g} s for {self.stats.waiting} ({len(ranks)} in all)",
                )
            if rejection := self._transport.rejection():
                raise ConfigError(rejection)
            if not (missing or is_equal or has_adopted):
                has_adopted = self._adopt_newest_state()
        self.stats.waiting = ""

    def _adopt_newest_state(self) -> bool:
        """Load the whole state of the peer with the most updates, if it has more than this one."""
        heard = self._membership.peers_heard()
        newest = max(heard, key=lambda rank: (heard[rank].updates, -rank))
        if heard[newest].updates <= self._counters.updates:
            return False
        own_bytes = sum(array.nbytes for array in self._trainer.state().values())
        try:
            fetched = self._transport.clients[newest].fetch(state_bytes=own_bytes)
        except ValueError as error:
            raise SeedbedError(
                ExitCode.PEERS_UNREACHABLE,
                f"the state of learner {newest}, which has the most updates, is refused ({error}): "
                "stop it, and the others continue from their own",
            ) from error
        if fetched.status is None or not fetched.state:
            return False
        if fetched.status.updates <= self._counters.updates:
            return False
        self._trainer.load(fetched.state)
        self._counters.updates = fetched.status.updates
        return True

    # --- update ----------------------------------------------------------------------------

    @override
    def step(self, batch: TensorDict) -> dict[str, Tensor]:
        """Make an update from the gradients of all learners.

        `loss` and the other outputs are of this learner's own batch, `gradient_norm` is of the
        sum.
        """
        outputs, gradients = self._trainer.gradients(batch)
        own = self._learner.to_host(gradients)
        # Weigh by the fraction of real transitions in the batch.
        weight = np.float32(1)
        if "unmasked" in outputs:
            weight = np.float32(np.asarray(outputs["unmasked"]))
        started, update = time.perf_counter(), self._counters.updates
        if self._log is not None and (update + 1) % self._settings.gradients_every == 0:
            self._log.on_gradient(update + 1, own)
        # Sum the weighted gradients, with the weight as one more element.
        total = ring_sum(
            np.append(own * weight, weight),
            self._membership.rank,
            self._membership.count,
            send=lambda hop, data: self._transport.send_segment(update, hop, data),
            receive=lambda hop: self._receive(update, hop),
        )
        # Apply the mean.
        mean = total[:-1] / max(total[-1], np.finfo(np.float32).tiny)
        norm = self._trainer.apply(self._learner.layout.split(mean))
        self.stats.seconds += time.perf_counter() - started
        self.stats.alive = self._membership.count
        self.stats.mixes += 1
        self.stats.sent_bytes = self._ring.sent_bytes
        self.stats.refused = self._transport.refused
        return {**outputs, "gradient_norm": norm}

    def _receive(self, update: int, hop: int) -> bytes:
        began = time.perf_counter()
        previous = (self._membership.rank - 1) % self._membership.count
        self.stats.waiting = f"the gradients of learner {previous}"
        while (data := self._transport.segment_buffer.take(update, hop, _POLL_S)) is None:
            if self._stopping.is_set():
                raise ShuttingDown
            waited = time.perf_counter() - began
            if waited > self._settings.deadline_s:
                raise SeedbedError(
                    ExitCode.PEERS_UNREACHABLE,
                    f"no gradients of learner {previous} for update {update + 1} in {waited:.0f} "
                    f"s, and gossip.deadline_s is {self._settings.deadline_s:g}: with all-reduce "
                    "no learner continues alone; with gossip.topology gossip it does",
                )
        self.stats.waiting = ""
        self.stats.wait_seconds += time.perf_counter() - began
        self.stats.received += 1
        self.stats.received_bytes += len(data)
        return data


def ring_sum(
    own: FlatParams,
    rank: int,
    count: int,
    send: Callable[[int, bytes], None],
    receive: Callable[[int], bytes],
) -> FlatParams:
    """Return the sum of all learners' `own` [d], bit for bit the same on each of them.

    Each learner sends to the next one (Patarasuk and Yuan 2009). In n − 1 hops every segment of
    the buffer collects its sum, in n − 1 more hops the sums go around. So each learner sends
    2(n − 1)/n of the buffer.

    Args:
        own: Terms [d] of this learner.
        rank: Rank of this learner.
        count: Number of learners.
        send: Sends (hop, segment) to learner rank + 1.
        receive: Waits for the segment of a hop from learner rank − 1. `SegmentBuffer` takes none of
            another size.
    """
    total = own.copy()
    bounds = ring_bounds(len(total), count)

    def segment(k: int) -> FlatParams:
        k %= count
        return total[bounds[k] : bounds[k + 1]]

    for hop in range(2 * (count - 1)):
        # Send segment `rank` first, and then always the one that has just come.
        send(hop, segment(rank - hop).tobytes())
        data = np.frombuffer(receive(hop), np.float32)
        place = segment(rank - hop - 1)
        if hop < count - 1:
            place += data
        else:
            place[:] = data
    return total
