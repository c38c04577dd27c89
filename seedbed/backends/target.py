"""The target network: parameters of some updates ago. Published parameters never change, so it
is a reference to them, and taking them over costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.backends.state import checked
from seedbed.types import Params


class TargetNetwork:
    """Follows a trainer's parameters every so many updates.

    Args:
        names: `model/PATH` of each parameter.
        params: the trainer's own.
        every: updates; 0 is no target network, and `params` are then an empty list.
    """

    def __init__(self, names: list[str], params: Params, every: int) -> None:
        self._names = [name.replace("model/", "target/", 1) for name in names]
        self._every = every
        self._since = 0
        self.params: Params = list(params) if every else []

    def follow(self, params: Params) -> None:
        """An update has made `params`."""
        if not self._every:
            return
        self._since += 1
        if self._since >= self._every:
            self.params, self._since = list(params), 0

    def state(self) -> dict[str, NDArray[Any]]:
        """`target/PATH` arrays and `target_age`, the updates since they were taken over."""
        if not self._every:
            return {}
        arrays = zip(self._names, self.params, strict=True)
        return {
            **{name: np.array(array) for name, array in arrays},
            "target_age": np.array(self._since),
        }

    def load(
        self,
        state: Mapping[str, NDArray[Any]],
        params: Params,
        to_device: Callable[[NDArray[Any]], Any],
    ) -> None:
        """Take a state; one without a target network begins with `params`.

        Raises:
            SeedbedError: as `checked`.
        """
        if not self._every:
            return
        self.params, self._since = list(params), 0
        if "target_age" in state:
            arrays = checked(self._names, params, state, "target/")
            self.params = [to_device(array) for array in arrays]
            self._since = int(state["target_age"])
