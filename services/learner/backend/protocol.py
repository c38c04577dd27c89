"""What a backend gives: compiled inference, compiled training, scan, and arrays on the device.

`tensorflow.py` and `jax.py` implement it; they alone import TensorFlow or JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from services.common.spec import ArraySpec

if TYPE_CHECKING:  # Keras is imported by `use`, once its backend is chosen
    import keras

Tensor = Any
Params = list[Tensor]
Rows = dict[str, Tensor]
InferenceFunction = Callable[[Params, Rows, Rows], tuple[Rows, Rows]]
LossFunction = Callable[[Params, Rows], tuple[Tensor, dict[str, Tensor]]]


class InferenceEngine(Protocol):
    """A compiled inference step over device tables of one row a slot. One thread calls it."""

    def run(
        self, params: Params, slots: NDArray[np.int32], inputs: Mapping[str, NDArray[Any]]
    ) -> Rows:
        """Gather the tables' rows at `slots` [N], call the function, scatter the new rows.

        `function(params, rows, inputs) -> (outputs, new rows)`; returns the outputs on the
        device. `slots` are distinct, but for padding, which all names the table's last row.
        """

    def read(self, name: str, slots: NDArray[np.int32]) -> NDArray[Any]:
        """Rows of a table, on the host. For tests and `seedbed debug`."""


class Trainer(Protocol):
    """A compiled training step. One thread calls it."""

    def step(self, batch: Rows) -> dict[str, Tensor]:
        """One update. Returns the loss's scalars, `loss` and `gradient_norm`, on the device."""

    def params(self) -> Params:
        """The newest parameters as a whole. What is returned never changes afterwards."""

    def state(self) -> dict[str, NDArray[Any]]:
        """`model/PATH` and `optimizer/PATH` arrays on the host, the same under both backends."""

    def load(self, state: Mapping[str, NDArray[Any]], optimizer: bool = True) -> None:
        """Take a state. Raises SeedbedError with names and both shapes where it does not fit.

        With `optimizer=False` only the model is taken (a warm start).
        """


class Backend(Protocol):
    """Chosen once a process, since Keras is."""

    name: str

    def devices(self) -> list[str]:
        """Devices that this process can use, `gpu:0`, accelerators first."""

    def scan(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        initial: Any,
        inputs: Any,
        reverse: bool = False,
    ) -> tuple[Any, Any]:
        """`lax.scan`: carry over the leading axis of `inputs`; returns (carry, stacked)."""

    def inference(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> InferenceEngine:
        """Compile an inference step. Tables have slots + 1 rows, zero at first; the last pads."""

    def trainer(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
    ) -> Trainer:
        """Compile a training step. `max_gradient_norm` 0 does not clip."""

    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> Rows:
        """Arrays on the device. The NumPy arrays must not be written to afterwards."""

    def to_host(self, value: Tensor) -> NDArray[Any]:
        """A NumPy view or copy of a device array; waits for it."""

    def profile(self, directory: str) -> AbstractContextManager[None]:
        """Write a TensorBoard profile of what runs inside the context."""
