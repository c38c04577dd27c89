"""Interface between the training thread and an exchange of parameters or gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from seedbed.backends.tables import TensorDict
from seedbed.backends.trainer import Trainer
from seedbed.config.gossip import Gossip
from seedbed.gossip.parameters import FlatParams, ParameterLayout
from seedbed.gossip.second_reading import SecondReading
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.runtime.threads import Threads
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.gossip import GossipStats
from seedbed.types import Params, Tensor

# For all learners to start: a first actor may be far, and a first compilation may be long.
MEET_S = 600.0


class ShuttingDown(Exception):
    """The learner stops while the exchange waits for a peer."""


@dataclass(frozen=True)
class LocalLearner:
    """Parts of this learner that an exchange uses.

    Attributes:
        trainer: Updates the parameters.
        layout: Layout of the trainer's parameters.
        counters: Counters of this learner; `updates` is the number of the newest update.
        stats: Statistics of the exchange, for telemetry.
        threads: Threads of this learner; `stopping` ends every wait.
        answer_state_requests: Answers peers that ask for the whole state. An exchange calls it
            while it keeps the training thread waiting.
    """

    trainer: Trainer
    layout: ParameterLayout
    counters: Counters
    stats: GossipStats
    threads: Threads
    answer_state_requests: Callable[[], None] = lambda: None

    def to_host(self, arrays: Sequence[Tensor]) -> FlatParams:
        """Copy arrays of the trainer's layout into one new buffer [d] on the host."""
        return self.layout.flatten([np.asarray(array) for array in arrays])


class ParameterExchange:
    """Exchange of a learner with its peers. Training thread only, except for `close`.

    Attributes:
        second_reading: confirms what peers have stated; None on hosts without streams to peers.
    """

    second_reading: SecondReading | None = None

    def start(self) -> None:
        """Connect to the peers, before the first update.

        Raises:
            SeedbedError: A peer rejects this learner, or does not answer in time.
            ShuttingDown: The learner stops.
        """
        raise NotImplementedError

    def resync_if_left_behind(self) -> bool:
        """Adopt a peer's parameters if the peers have excluded this learner.

        Call it before a batch, whose environment steps the old parameters acted.

        Returns:
            Whether the parameters were replaced.
        """
        return False

    def step(self, batch: TensorDict) -> dict[str, Tensor]:
        """Make an update with a batch, and exchange; arguments and result as `Trainer.step`.

        Raises:
            SeedbedError: DIVERGED, or a peer is lost that the update needs.
            ShuttingDown: The learner stops.
        """
        raise NotImplementedError

    def after_update(self) -> None:
        """Exchange after an update that the trainer has made by itself."""
        # The schema of experiments refuses replay on the device wherever gradients are exchanged.
        raise NotImplementedError("gradients are exchanged before the update")

    def acting_params(self) -> Params | None:
        """Return the parameters that act from now on; None for the trainer's newest ones."""
        return None

    def close(self) -> None:
        """Disconnect from the peers. Any thread."""


class PeerExchange(ParameterExchange):
    """Exchange over the streams of this process.

    Args:
        settings: Section `gossip` of the experiment.
        learner: Parts of this learner.
        transport: Streams from and to the peers.
    """

    def __init__(self, settings: Gossip, learner: LocalLearner, transport: GossipTransport) -> None:
        self._settings, self._learner, self._transport = settings, learner, transport
        self._trainer, self._membership = learner.trainer, transport.membership
        self._stopping = learner.threads.stopping
        self.stats = learner.stats
        self.second_reading = SecondReading(transport.request_statuses)

    @override
    def close(self) -> None:
        self._transport.close()
