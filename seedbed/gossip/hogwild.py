"""Hogwild: gradients of all learners onto one shared copy, as A3C does (Mnih et al. 2016).

Learner 0 holds the shared copy and the only optimizer. Each learner acts with a copy of the
parameters of its own, computes gradients at that copy, and replaces the copy by the newest shared
parameters. No gradients are averaged, and no learner waits for another one's batch. Unlike the
threads of Niu et al. 2011 (Hogwild!), gradients that come together are applied one after the other,
so no number of the shared copy is half old and half new.
"""

import logging
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

import numpy as np
from typing_extensions import override

from seedbed.backends.tables import TensorDict
from seedbed.config.gossip import Gossip
from seedbed.gossip.exchange import MEET_S, LocalLearner, PeerExchange, ShuttingDown
from seedbed.gossip.gossip_log import GossipLog
from seedbed.gossip.parameters import FlatParams
from seedbed.gossip.shared_copy import SharedCopy
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.types import Params, Tensor

log = logging.getLogger(__name__)

_POLL_S = 0.1


class HogwildExchange(PeerExchange):
    """Asynchronous updates of one shared copy of the parameters.

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
        self._shared: SharedCopy | None = None
        # Parameters that act, and at which this learner's gradients are computed.
        self._acting: Params = []
        if transport.shared_client is None:
            self._shared = SharedCopy(self._membership.rank, self._trainer, learner.layout)
            transport.shared_copy = self._shared

    @override
    def acting_params(self) -> Params:
        return self._acting

    # --- start -----------------------------------------------------------------------------

    @override
    def start(self) -> None:
        """Serve the shared copy, or wait for it and begin with its parameters."""
        self._acting = self._trainer.params()
        if self._shared is not None:
            shared, stopping = self._shared, self._stopping
            self._learner.threads.start("shared-copy", lambda: shared.run(stopping))
            self._transport.start()
            return
        self._transport.start()
        assert self._transport.shared_client is not None
        newest = self._wait_for(self._transport.shared_client.welcome, MEET_S)
        if self._counters.updates and not newest.iteration:
            log.warning(
                "learner 0 has taken no gradients since it started, and this learner had made %d "
                "updates: training continues from the checkpoint of learner 0",
                self._counters.updates,
            )
        self._adopt(newest)

    # --- update ----------------------------------------------------------------------------

    @override
    def step(self, batch: TensorDict) -> dict[str, Tensor]:
        """Compute gradients where the batch was acted, and apply them to the shared copy.

        `gradient_norm` is of this learner's own gradients, before they are clipped.
        """
        outputs, gradients = self._trainer.gradients(batch, self._acting)
        started = time.perf_counter()
        number = self._counters.updates + 1
        logs = self._log is not None and number % self._settings.gradients_every == 0
        own = self._learner.to_host(gradients) if logs or self._shared is None else None
        if logs and self._log is not None and own is not None:
            self._log.on_gradient(number, own)
        if self._shared is not None:
            norm, self._acting = self._shared.apply(gradients)
        else:
            assert own is not None
            norm = np.float32(np.linalg.norm(own.astype(np.float64)))
            if np.isfinite(norm):
                self._send(own)
        self._update_stats(time.perf_counter() - started)
        return {**outputs, "gradient_norm": norm}

    def _send(self, gradients: FlatParams) -> None:
        """Send gradients to the shared copy, and adopt the parameters that come back."""
        began = time.perf_counter()
        self._adopt(self._wait_for(self._transport.send_gradients(gradients)))
        self.stats.wait_seconds += time.perf_counter() - began

    def _adopt(self, newest: Message) -> None:
        self._trainer.set_params(self._learner.layout.split(newest.values))
        self._acting = self._trainer.params()

    def _wait_for(self, reply: Future[Message], deadline_s: float | None = None) -> Message:
        """Wait for the parameters of the shared copy, until the deadline.

        Raises:
            SeedbedError: PEERS_UNREACHABLE, or CONFIG where learner 0 rejects this one.
        """
        deadline_s = self._settings.deadline_s if deadline_s is None else deadline_s
        began = time.monotonic()
        self.stats.waiting = "the shared copy of learner 0"
        while True:
            try:
                newest = reply.result(_POLL_S)
                break
            except FutureTimeout:
                self._learner.answer_state_requests()
            if self._stopping.is_set():
                raise ShuttingDown
            if rejection := self._transport.rejection():
                raise ConfigError(rejection)
            waited_s = time.monotonic() - began
            if waited_s > deadline_s:
                raise SeedbedError(
                    ExitCode.PEERS_UNREACHABLE,
                    f"no parameters of learner 0 in {waited_s:.0f} s, and the limit is "
                    f"{deadline_s:g}: with gossip.topology hogwild learner 0 holds the only "
                    "shared copy; with gossip the other learners continue without it",
                )
        self.stats.waiting = ""
        return newest

    def _update_stats(self, seconds: float) -> None:
        stats = self.stats
        stats.seconds += seconds
        stats.alive = len(self._membership.alive())
        stats.mixes += 1
        stats.refused = self._transport.refused
        if (client := self._transport.shared_client) is not None:
            stats.sent, stats.sent_bytes = client.sent, client.sent_bytes
            stats.received, stats.received_bytes = client.received, client.received_bytes
