"""The target network: parameters of some updates ago.

It is a reference to published parameters. Since those never change, setting it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.backends.state import checked
from seedbed.types import Params


class TargetNetwork:
    """Parameters that are set to a trainer's once a period.

    Args:
        names: `model/PATH` of each parameter.
        params: the trainer's parameters.
        period: updates between two settings; 0 is no target network, with an empty `params`.
    """

    def __init__(self, names: list[str], params: Params, period: int) -> None:
        self._names = [name.replace("model/", "target/", 1) for name in names]
        self._period = period
        self._age = 0
        self.params: Params = list(params) if period else []

    def on_update(self, params: Params) -> None:
        """Count an update, which made `params`."""
        if not self._period:
            return
        self._age += 1
        if self._age >= self._period:
            self.params, self._age = list(params), 0

    def state(self) -> dict[str, NDArray[Any]]:
        """Return `target/PATH` arrays and `target_age`, the updates since they were set."""
        if not self._period:
            return {}
        arrays = zip(self._names, self.params, strict=True)
        return {
            **{name: np.array(array) for name, array in arrays},
            "target_age": np.array(self._age),
        }

    def load(
        self,
        state: Mapping[str, NDArray[Any]],
        params: Params,
        to_device: Callable[[NDArray[Any]], Any],
    ) -> None:
        """Restore the output of `state`. Without a target network in it, set it to `params`.

        Args:
            state: arrays by name.
            params: the trainer's parameters.
            to_device: makes a device array of its own.

        Raises:
            SeedbedError: CHECKPOINT_READ: names or shapes differ.
        """
        if not self._period:
            return
        self.params, self._age = list(params), 0
        if "target_age" in state:
            arrays = checked(self._names, params, state, "target/")
            self.params = [to_device(array) for array in arrays]
            self._age = int(state["target_age"])
