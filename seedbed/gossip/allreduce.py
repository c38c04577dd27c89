"""All-reduce: one update out of everybody's gradients, so that all learners stay equal.

Each gradient counts as many times as its batch has real transitions. So n learners of b
environments make the update of one learner of n·b (Assran et al. 2019, footnote 2).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from seedbed.backends.protocol import Backend, Rows, Trainer
from seedbed.config.gossip import Gossip
from seedbed.gossip.exchange import ShuttingDown
from seedbed.gossip.layout import Layout
from seedbed.gossip.peers import Peers
from seedbed.gossip.records import Records
from seedbed.gossip.ring import ring_sum
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.gossip import GossipNumbers
from seedbed.types import Tensor

_POLL_S = 0.1
MEET_S = 600.0  # for everybody to come: a first actor, a first compile


class AllReduce:
    """See `exchange.Exchange`.

    Args:
        counters: `updates` says which update is next.
        records: keeps gradients; None where none are to be kept.
        serve: answers peers that ask for the whole state; called while this learner waits.
    """

    def __init__(
        self,
        settings: Gossip,
        trainer: Trainer,
        backend: Backend,
        layout: Layout,
        peers: Peers,
        counters: Counters,
        numbers: GossipNumbers,
        stopping: threading.Event,
        serve: Callable[[], None],
        records: Records | None = None,
    ) -> None:
        self._settings = settings
        self._trainer, self._backend, self._layout = trainer, backend, layout
        self._peers, self._members = peers, peers.members
        self._counters, self._numbers = counters, numbers
        self._stopping, self._serve, self._records = stopping, serve, records

    def start(self) -> None:
        """Wait for everybody; whoever is behind takes the state of the one that is furthest."""
        self._peers.start()
        deadline = time.monotonic() + MEET_S
        fetched = False
        while not (together := self._together()) or not self._connected():
            self._serve()
            self._stop_or_wait()
            if time.monotonic() > deadline:
                raise self._missing()
            if (refusal := self._peers.refusal()) != "":
                raise SeedbedError(ExitCode.CONFIG, refusal)
            if together is False and not fetched:
                fetched = self._catch_up()
        self._numbers.waiting = ""

    def _together(self) -> bool | None:
        """Whether all are at the same update; None while not all are known."""
        heard = self._members.peers_heard()
        if len(heard) < self._members.count - 1:
            return None
        return {member.updates for member in heard.values()} == {self._counters.updates}

    def _connected(self) -> bool:
        assert self._peers.segments is not None
        return not self._peers.segments.cause and self._peers.inbox.streams > 0

    def _catch_up(self) -> bool:
        heard = self._members.peers_heard()
        furthest = max((member.updates, -rank) for rank, member in heard.items())
        if furthest[0] <= self._counters.updates:
            return False
        updates, state = self._peers.fetch_state(-furthest[1])
        if updates > self._counters.updates and state:
            self._trainer.load(state)
            self._counters.updates = updates
            return True
        return False

    def _stop_or_wait(self) -> None:
        heard = self._members.peers_heard()
        missing = sorted(set(range(self._members.count)) - heard.keys() - {self._members.rank})
        self._numbers.waiting = (
            f"learners {', '.join(map(str, missing))} to come"
            if missing
            else "all learners to be at the same update"
        )
        if self._stopping.wait(_POLL_S):
            raise ShuttingDown

    def _missing(self) -> SeedbedError:
        return SeedbedError(
            ExitCode.PEERS_UNREACHABLE,
            f"waited {MEET_S:g} s for {self._numbers.waiting} ({self._members.count} in all)",
        )

    def resync_if_left_behind(self) -> bool:
        """Nobody is ever left out."""
        return False

    def step(self, batch: Rows) -> dict[str, Tensor]:
        """An update out of all gradients. `loss` and the other outputs are of this learner's own
        batch, `gradient_norm` is of the sum.
        """
        outputs, gradients = self._trainer.gradients(batch)
        host = [self._backend.to_host(gradient) for gradient in gradients]
        weight = 1.0
        if "unmasked" in outputs:  # real transitions of the batch, as a fraction
            weight = float(self._backend.to_host(outputs["unmasked"]))
        started = time.perf_counter()
        # The weights ride at the end.
        flat, update = self._layout.flatten(host), self._counters.updates
        every = self._settings.gradients_every
        if self._records is not None and (update + 1) % every == 0:
            self._records.gradient(update + 1, flat)
        own = np.append(flat * np.float32(weight), np.float32(weight))
        total = ring_sum(
            own,
            self._members.rank,
            self._members.count,
            send=lambda step, data: self._peers.send_segment(update, step, data),
            receive=lambda step: self._receive(update, step),
        )
        mean = total[:-1] / max(total[-1], np.finfo(np.float32).tiny)
        norm = self._trainer.apply(self._layout.split(mean))
        self._account(time.perf_counter() - started)
        return {**outputs, "gradient_norm": norm}

    def _receive(self, update: int, step: int) -> bytes:
        began = time.perf_counter()
        before = (self._members.rank - 1) % self._members.count
        self._numbers.waiting = f"the gradients of learner {before}"
        while (data := self._peers.inbox.take(update, step, _POLL_S)) is None:
            if self._stopping.is_set():
                raise ShuttingDown
            waited = time.perf_counter() - began
            if waited > self._settings.deadline_s:
                raise SeedbedError(
                    ExitCode.PEERS_UNREACHABLE,
                    f"no gradients of learner {before} for update {update + 1} in {waited:.0f} s, "
                    f"and gossip.deadline_s is {self._settings.deadline_s:g}: with all-reduce "
                    "nobody goes on alone; gossip.topology gossip would",
                )
        self._numbers.waiting = ""
        self._numbers.wait_seconds += time.perf_counter() - began
        self._numbers.received += 1
        self._numbers.received_bytes += len(data)
        return data

    def _account(self, seconds: float) -> None:
        assert self._peers.segments is not None
        self._numbers.seconds += seconds
        self._numbers.alive = self._members.count
        self._numbers.mixes += 1
        self._numbers.sent_bytes = self._peers.segments.sent_bytes

    def after_update(self) -> None:
        """Never called: the experiment's schema refuses it with replay on the device."""
        raise NotImplementedError("all-reduce exchanges gradients, before the update")

    def close(self) -> None:
        """See the protocol."""
        self._peers.close()
