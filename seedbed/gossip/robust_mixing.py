"""Mixing of parameters, by `gossip.mean`: plain, or such that a few bad messages cannot bend it.

`clipped` is self-centred clipping (He, Karimireddy and Jaggi 2022, arXiv:2202.01545): what a
message adds, w_j (x_j − x_i), is shortened to the length w_j r where x_j is farther away than the
radius r. The radius is the median distance of the last messages before this mixing, so it follows
the learners as long as fewer than half of these messages are bad. The first mixing clips nothing.

`trimmed` is the screening of BRIDGE-T (Fang, Yang and Bajwa 2022, arXiv:1908.08098), with the
trimmed mean of Yin et al. 2018 (arXiv:1803.01498): of each number, the largest and the smallest of
the peers are dropped. The mean of the others has the weight of all peers together. So one bad peer
cannot choose any number.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from seedbed.backends.trainer import Trainer
from seedbed.gossip.parameters import FlatParams
from seedbed.gossip.topology import TRIMMED_IN_PEERS
from seedbed.types import Tensor

# Messages whose distances decide the radius.
DISTANCES = 32
_UNCLIPPED = float(np.finfo(np.float32).max)


class Mixing:
    """Plain mixing: the weighted mean of the parameters and the messages. Training thread only.

    Args:
        trainer: Holds the parameters.

    Attributes:
        least_peers: Messages without which nothing is mixed.
    """

    least_peers = 1

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def mix(self, own: float, others: Sequence[tuple[float, FlatParams]]) -> None:
        """Replace the parameters.

        Args:
            own: Weight of the parameters.
            others: Weight and flat buffer [d] of each message.
        """
        self._trainer.mix(own, others)


class ClippedMixing(Mixing):
    """Mixing with clipped differences; arguments as `Mixing`."""

    @override
    def __init__(self, trainer: Trainer) -> None:
        # It imports Keras, whose backend is chosen by now.
        from seedbed.backends.arithmetic import clipped_mean

        self._run = trainer.mixing(clipped_mean)
        self._distances: deque[float] = deque(maxlen=DISTANCES)
        # Of the last mixing, on the device: they are read at the next one, when nothing waits.
        self._newest: Tensor | None = None

    @override
    def mix(self, own: float, others: Sequence[tuple[float, FlatParams]]) -> None:
        if self._newest is not None:
            self._distances.extend(np.asarray(self._newest).tolist())
        radius = float(np.median(self._distances)) if self._distances else _UNCLIPPED
        weights = np.array([weight for weight, _ in others], np.float32)
        received = [values for _, values in others]
        self._newest = self._run([weights, np.array(radius, np.float32), *received])


class TrimmedMixing(Mixing):
    """Mixing with the trimmed mean of the peers; arguments as `Mixing`."""

    least_peers = TRIMMED_IN_PEERS

    @override
    def __init__(self, trainer: Trainer) -> None:
        from seedbed.backends.arithmetic import trimmed_mean

        self._run = trainer.mixing(trimmed_mean)

    @override
    def mix(self, own: float, others: Sequence[tuple[float, FlatParams]]) -> None:
        self._run([np.array(own, np.float32), *(values for _, values in others)])


MIXINGS: dict[str, type[Mixing]] = {
    "mean": Mixing,
    "clipped": ClippedMixing,
    "trimmed": TrimmedMixing,
}
