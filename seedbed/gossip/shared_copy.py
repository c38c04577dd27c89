"""Shared copy of the parameters, onto which learners apply gradients as they come (A3C)."""

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from seedbed.backends.trainer import Trainer
from seedbed.gossip.parameters import FlatParams, ParameterLayout
from seedbed.gossip.transport.buffers import Message
from seedbed.runtime.threads import POLL_S
from seedbed.types import Params, Tensor


@dataclass(frozen=True)
class GradientNumber:
    """Identity of a peer's gradients, which may come twice when a connection is lost.

    Attributes:
        sender: Rank of the peer.
        incarnation: Random number of the peer's process.
        number: Count of the gradients of that process, from 1.
    """

    sender: int
    incarnation: int
    number: int


@dataclass(frozen=True, eq=False)
class _Request:
    """Gradients to apply, or nothing; the reply is the newest parameters."""

    gradients: FlatParams | None
    number: GradientNumber | None
    reply: Future[Message]


class SharedCopy:
    """Newest parameters and the only optimizer of learners that share them (Mnih et al. 2016).

    The trainer of learner 0 holds both. Gradients of this learner come from its training thread,
    those of peers through a thread of their own, so no learner waits for another one's batch.

    Args:
        rank: Rank of this learner.
        trainer: Trainer of this learner.
        layout: Layout of the trainer's parameters.

    Attributes:
        applied: Gradients applied by this process, those of this learner included.
    """

    def __init__(self, rank: int, trainer: Trainer, layout: ParameterLayout) -> None:
        self._rank, self._trainer, self._layout = rank, trainer, layout
        self._requests: queue.Queue[_Request] = queue.Queue()
        # By rank: the newest gradients that were applied, or skipped.
        self._newest: dict[int, GradientNumber] = {}
        self._lock = threading.Lock()
        self.applied = 0

    def apply(self, gradients: list[Tensor]) -> tuple[Tensor, Params]:
        """Apply gradients, unless they are not finite. Any thread.

        Returns:
            The norm before clipping, and the newest parameters.
        """
        with self._lock:
            norm = self._trainer.apply(gradients)
            self.applied += bool(np.isfinite(np.asarray(norm)))
            return norm, self._trainer.params()

    def request(
        self, gradients: FlatParams | None = None, number: GradientNumber | None = None
    ) -> Future[Message]:
        """Request that a peer's gradients are applied. Any thread.

        Gradients that were applied before are not applied again.

        Args:
            gradients: Gradients [d]; None only reads.
            number: Identity of the gradients.

        Returns:
            The newest parameters, with `applied` as their iteration.
        """
        reply: Future[Message] = Future()
        self._requests.put(_Request(gradients, number, reply))
        return reply

    def run(self, stopping: threading.Event) -> None:
        """Serve the requests until `stopping` is set."""
        while not stopping.is_set():
            try:
                request = self._requests.get(timeout=POLL_S)
            except queue.Empty:
                continue
            # The stream of the peer may have ended meanwhile. Its gradients count all the same.
            wanted = request.reply.set_running_or_notify_cancel()
            number = request.number
            if number is not None and self._newest.get(number.sender) != number:
                assert request.gradients is not None
                self.apply(list(self._layout.split(request.gradients)))
                self._newest[number.sender] = number
            if wanted:
                with self._lock:
                    params, applied = self._trainer.params(), self.applied
                values = self._layout.flatten([np.asarray(array) for array in params])
                request.reply.set_result(Message(self._rank, applied, values))
