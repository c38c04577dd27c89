"""Broadcast and log of local updates, in a thread that keeps no update waiting.

The training thread hands over parameters on the device, which never change; this thread copies
them to the host.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from seedbed.gossip.exchange import LocalLearner
from seedbed.gossip.gossip_log import GossipLog
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.types import Params, Tensor

# Events that may wait for this thread: with more of them, training waits.
MAX_EVENTS = 8
_POLL_S = 0.2


@dataclass(frozen=True, eq=False)
class Update:
    """A local update.

    Attributes:
        iteration: Local iteration.
        params: Parameters after it, on the device.
        time_s: Unix time of the update.
        receivers: Ranks of the out-peers.
        gradients: Gradients to log, on the device; may be empty.
    """

    iteration: int
    params: Params
    time_s: float
    receivers: Collection[int]
    gradients: Sequence[Tensor] = ()


@dataclass(frozen=True, eq=False)
class Mixing:
    """A mixing, which follows the update of its iteration.

    Attributes:
        iteration: Local iteration.
        params: Parameters after it, on the device.
        time_s: Unix time of the mixing.
        messages: Messages that were mixed in.
        weights: Weight of each message.
    """

    iteration: int
    params: Params
    time_s: float
    messages: Sequence[Message]
    weights: Sequence[float]


class UpdatePublisher:
    """Queue of updates and mixings. `put` is for the training thread, `run` for its own."""

    def __init__(self, learner: LocalLearner, transport: GossipTransport, log: GossipLog) -> None:
        self._learner, self._transport, self._log = learner, transport, log
        self._events: queue.Queue[Update | Mixing] = queue.Queue(MAX_EVENTS)

    def put(self, event: Update | Mixing) -> None:
        """Hand over an event. Waits while `MAX_EVENTS` are queued."""
        while not self._learner.threads.stopping.is_set():
            try:
                self._events.put(event, timeout=_POLL_S)
                return
            except queue.Full:
                continue

    def flush(self) -> None:
        """Wait until every event is published."""
        self._events.join()

    def run(self) -> None:
        """Publish events until the learner stops and the queue is empty.

        Raises:
            SeedbedError: DIVERGED, before any peer receives such parameters.
        """
        stopping: threading.Event = self._learner.threads.stopping
        while not (stopping.is_set() and self._events.empty()):
            try:
                event = self._events.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            try:
                self._publish(event)
            finally:
                self._events.task_done()

    def _publish(self, event: Update | Mixing) -> None:
        iteration, params = event.iteration, self._learner.to_host(event.params)
        if isinstance(event, Mixing):
            self._log.on_mix(params, iteration, event.messages, event.weights, event.time_s)
            return
        # Log first: after a restart no version may be used twice, and each one that a peer mixes
        # must be in a log.
        self._log.on_update(params, iteration, event.time_s)
        message = Message(self._transport.membership.rank, iteration, params)
        self._transport.broadcast(message, event.receivers)
        if event.gradients:
            self._log.on_gradient(iteration, self._learner.to_host(event.gradients))
