"""Exchange of a learner of several hosts: the first one speaks with the peers, for all of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.backends.protocol import Backend
from seedbed.backends.tables import TensorDict
from seedbed.backends.trainer import Trainer
from seedbed.gossip.exchange import ParameterExchange
from seedbed.gossip.parameters import FlatParams, ParameterLayout
from seedbed.services.learner.hosts.agreement import Agreement
from seedbed.types import Params, Tensor

_SAME, _NEW = "same", "new"


class FirstHostParameters:
    """Parameters of the trainer of all hosts, as the first one mixes them. Training thread only.

    A trainer of several hosts runs its programs on all of them, and the messages of the peers are
    on the first one. So that one mixes on a device of its own.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._new: Params | None = None

    def take(self) -> Params | None:
        """Return the parameters that the other hosts do not have yet, once; None without any."""
        new, self._new = self._new, None
        return new

    def params(self) -> Params:
        """Return the newest parameters."""
        return self._trainer.params() if self._new is None else self._new

    def set_params(self, arrays: list[NDArray[np.float32]]) -> None:
        """Replace the parameters by arrays [...] as `Trainer.set_params` does."""
        self._new = list(arrays)

    def mix(self, own: float, others: Sequence[tuple[float, FlatParams]]) -> None:
        """Replace the parameters by a weighted sum; arguments as `Trainer.mix`."""
        from seedbed.backends.arithmetic import mixed

        weights = [np.float32(weight) for weight, _ in others]
        received = [values for _, values in others]
        self._new = mixed(self.params(), np.float32(own), weights, received)


class HostsExchange(ParameterExchange):
    """Exchange in which all hosts take the parameters of the first one, where a peer changed them.

    Args:
        backend: shares arrays among the hosts.
        trainer: the trainer of this host.
        layout: layout of the parameters.
        agreement: agreement of the hosts.
        exchange: the first host's exchange with the peers; None on the others.
        parameters: the parameters that this exchange replaces; None on the others.
    """

    def __init__(
        self,
        backend: Backend,
        trainer: Trainer,
        layout: ParameterLayout,
        agreement: Agreement,
        exchange: ParameterExchange | None = None,
        parameters: FirstHostParameters | None = None,
    ) -> None:
        self._backend, self._trainer, self._layout = backend, trainer, layout
        self._agreement, self._exchange, self._parameters = agreement, exchange, parameters
        if exchange is not None:
            self.second_reading = exchange.second_reading

    @override
    def start(self) -> None:
        if self._exchange is not None:
            self._exchange.start()
        self._share()

    @override
    def step(self, batch: TensorDict) -> dict[str, Tensor]:
        outputs = self._trainer.step(batch)
        self.after_update()
        return outputs

    @override
    def after_update(self) -> None:
        if self._exchange is not None:
            self._exchange.after_update()
        self._share()

    @override
    def close(self) -> None:
        if self._exchange is not None:
            self._exchange.close()

    def _share(self) -> None:
        """Take the first host's parameters, on all hosts at the same time, if they are new."""
        flat = np.zeros(self._layout.size, np.float32)
        word = None
        if self._parameters is not None:
            new = self._parameters.take()
            word = _SAME if new is None else _NEW
            if new is not None:
                flat = self._layout.flatten([np.asarray(array) for array in new])
        if self._agreement.word_of_first(word) == _NEW:
            received = self._backend.from_first_host({"parameters": flat})
            self._trainer.set_params(self._layout.split(received["parameters"]))
