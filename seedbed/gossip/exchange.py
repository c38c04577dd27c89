"""What a learner does with its peers at each update: nothing, gossip, or all-reduce."""

from __future__ import annotations

from typing import Protocol

from seedbed.backends.protocol import Rows
from seedbed.types import Tensor


class ShuttingDown(Exception):
    """The learner is to end while it waits for a peer."""


class ParameterExchange(Protocol):
    """Training thread only."""

    def start(self) -> None:
        """Meet the peers, before the first update.

        Raises:
            SeedbedError: they refuse this learner, or do not come.
            ShuttingDown: the learner is to end.
        """

    def resync_if_left_behind(self) -> bool:
        """Before a batch: whether this learner was left out, and has taken a peer's parameters
        instead of those that acted in it.
        """

    def step(self, batch: Rows) -> dict[str, Tensor]:
        """An update with a batch, and what belongs to it; as `Trainer.step`.

        Raises:
            SeedbedError: DIVERGED, or a peer is lost without whom nothing goes on.
            ShuttingDown: the learner is to end.
        """

    def after_update(self) -> None:
        """The part of `step` that follows an update which the trainer has made by itself."""

    def close(self) -> None:
        """Leave the peers. Any thread."""
