"""What follows an update and holds up nobody: its norm, the records, the broadcast.

The training thread hands over parameters as they are on the device, which never change; a thread of
this module brings them to the host.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seedbed.backends.protocol import Backend
from seedbed.gossip.layout import Flat, Layout
from seedbed.gossip.mailbox import Message
from seedbed.gossip.peers import Peers
from seedbed.gossip.records import Records
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.telemetry.gossip import GossipNumbers
from seedbed.types import Params

WAITING = 8  # events that may be under way: then training waits
_POLL_S = 0.2


@dataclass(frozen=True, eq=False)
class Update:
    """A local update, as it was.

    Attributes:
        number: the local iteration.
        params: after it, on the device.
        at: when that was, in unix seconds.
        to: who is to get them.
        gradients: of it, where they are to be kept.
    """

    number: int
    params: Params
    at: float
    to: Collection[int]
    gradients: Sequence[Any] = ()


@dataclass(frozen=True, eq=False)
class Mixing:
    """What was mixed into the parameters of an update, and what came out."""

    number: int
    params: Params
    at: float
    messages: Sequence[Message]
    weights: Sequence[float]


class Outbox:
    """`put` in the training thread, `run` in one of its own."""

    def __init__(
        self,
        rank: int,
        backend: Backend,
        layout: Layout,
        peers: Peers,
        records: Records,
        numbers: GossipNumbers,
        distance_every: int,
    ) -> None:
        self._rank, self._backend, self._layout = rank, backend, layout
        self._peers, self._records, self._numbers = peers, records, numbers
        self._distance_every = distance_every
        self._given: queue.Queue[Update | Mixing] = queue.Queue(WAITING)
        self._x: Flat = np.empty(0, np.float32)  # as the last event left them
        self._room: Flat = np.empty(0, np.float32)

    def begin(self, params: Params) -> None:
        """The parameters before the first iteration, or that were set since the last one."""
        self._x = self._flat(params)
        self._room = np.empty_like(self._x)

    def put(self, event: Update | Mixing, stopping: threading.Event) -> None:
        """Hand an event over. Waits while too many are under way."""
        while not stopping.is_set():
            try:
                self._given.put(event, timeout=_POLL_S)
                return
            except queue.Full:
                continue

    def settle(self) -> None:
        """Wait until what was put is done."""
        self._given.join()

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping`, and then what was put before it.

        Raises:
            SeedbedError: DIVERGED, before any peer gets such parameters.
        """
        while not (stopping.is_set() and self._given.empty()):
            try:
                event = self._given.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            try:
                if isinstance(event, Update):
                    self._update(event)
                else:
                    self._mixing(event)
            finally:
                self._given.task_done()

    def _update(self, update: Update) -> None:
        before, number = self._x, update.number
        self._x = self._flat(update.params)
        np.subtract(self._x, before, out=self._room)
        norm = math.sqrt(float(np.dot(self._room, self._room)))
        if not math.isfinite(norm):
            raise SeedbedError(
                ExitCode.DIVERGED,
                f"the parameters are not finite after local iteration {number}, and no peer has "
                "got them: lower learner.optimizer.learning_rate; the newest checkpoint is from "
                "before",
            )
        # First the record: no version may be used twice, and none mixed that is in no record.
        self._records.update(before, number, norm, update.at)
        self._peers.broadcast(Message(self._rank, number, self._x), update.to)
        self._numbers.update_norm = norm
        if update.gradients:
            host = [self._backend.to_host(gradient) for gradient in update.gradients]
            self._records.gradient(number, self._layout.flatten(host))

    def _mixing(self, mixing: Mixing) -> None:
        self._measure(self._x, mixing.messages)
        self._records.mix(self._x, mixing.number, mixing.messages, mixing.weights, mixing.at)
        self._x = self._flat(mixing.params)

    def _measure(self, own: Flat, messages: Sequence[Message]) -> None:
        every = self._distance_every
        if every and (self._numbers.mixes - 1) % every == 0:
            for message in messages:
                np.subtract(own, message.values, out=self._room)
                distance = math.sqrt(float(np.dot(self._room, self._room)))
                self._numbers.distance = {**self._numbers.distance, message.sender: distance}

    def _flat(self, params: Params) -> Flat:
        return self._layout.flatten([self._backend.to_host(array) for array in params])
