"""What a backend gives: compiled inference, compiled training, and arrays on the device.

`tensorflow.py` and `jax.py` implement it; they alone import TensorFlow or JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor

if TYPE_CHECKING:  # Keras is imported by `use`, once its backend is chosen
    import keras

Rows = dict[str, Tensor]
InferenceFunction = Callable[[Params, Rows, Rows], tuple[Rows, Rows]]
# Parameters, those of the target network, and a batch, to the loss and other outputs.
LossFunction = Callable[[Params, Params, Rows], tuple[Tensor, dict[str, Tensor]]]


class Tables(Protocol):
    """Arrays that stay on the device and are changed in place, by compiled functions only."""

    def take(self, name: str, index: Tensor) -> Tensor:
        """Rows of a table at `index`, an integer tensor of any shape."""

    def put(self, name: str, index: Tensor, rows: Tensor) -> None:
        """Replace the rows at `index` [N]. Of an index that is named twice, either row stays."""


class DeviceTables(Tables, Protocol):
    """Tables, zero at first. One thread calls what is compiled on them."""

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function(tables, *arrays) -> outputs` as a compiled step: takes the arrays, changes
        the tables, returns the outputs on the device.
        """

    def read(self) -> dict[str, NDArray[Any]]:
        """All tables, on the host."""

    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace all tables, by arrays of their shapes."""


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
        """One update. Returns the loss's outputs, `loss` and `gradient_norm`, on the device."""

    def fuse(
        self,
        tables: DeviceTables,
        draw: Callable[[Tables], Rows],
        settle: Callable[[Tables, Rows, dict[str, Tensor]], None],
    ) -> Callable[[], dict[str, Tensor]]:
        """Compile an update whose batch comes from tables: `draw` makes it, and `settle` gets
        the batch and the loss's outputs. Returns a function like `step`, without a batch.
        """

    def gradients(self, batch: Rows) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The first half of `step`: the loss's outputs and `loss`, and the gradients, not clipped,
        in the order of the parameters.
        """

    def apply(self, gradients: list[Tensor]) -> Tensor:
        """The other half: clip, update. Takes NumPy's arrays too; returns the norm before."""

    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the parameters, in their order."""

    def set_params(self, arrays: list[NDArray[np.float32]]) -> None:
        """Replace the parameters, and nothing else: neither the optimizer's state nor the target
        network. The arrays must not be written to afterwards.
        """

    def mix(self, own: float, others: Sequence[tuple[float, NDArray[np.float32]]]) -> None:
        """Replace the parameters by `own` times themselves plus the weighted others, each a flat
        buffer [d] in the order of `layout`; compiled.
        """

    def params(self) -> Params:
        """The newest parameters as a whole. What is returned never changes afterwards."""

    def state(self) -> dict[str, NDArray[Any]]:
        """`model/PATH`, `optimizer/PATH` and, with a target network, `target/PATH` arrays on the
        host, the same under both backends.
        """

    def load(self, state: Mapping[str, NDArray[Any]], optimizer: bool = True) -> None:
        """Take a state. Raises SeedbedError with names and both shapes where it does not fit.

        With `optimizer=False` only the model is taken (a warm start).
        """


class Backend(Protocol):
    """Chosen once a process, since Keras is."""

    name: str

    def devices(self) -> list[str]:
        """Devices that this process can use, `gpu:0`, accelerators first."""

    def memory_bytes(self) -> int:
        """Memory of the first device, in bytes; 0 where it cannot be known."""

    def inference(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> InferenceEngine:
        """Compile an inference step. Tables have slots + 1 rows, zero at first; the last pads."""

    def tables(self, specs: Mapping[str, tuple[int, ArraySpec]]) -> DeviceTables:
        """Tables by name, of so many rows each."""

    def uniform(self, seed: int, counter: Tensor, shape: tuple[int, ...]) -> Tensor:
        """float32 in [0, 1), drawn on the device; the same for the same seed and counter [1]."""

    def trainer(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
        target_update_period: int = 0,
    ) -> Trainer:
        """Compile a training step.

        Args:
            max_gradient_norm: 0 does not clip.
            target_update_period: updates after which the target network takes the parameters
                over; 0 is an agent without one, whose loss gets an empty list.
        """

    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> Rows:
        """Arrays on the device. The NumPy arrays must not be written to afterwards."""

    def to_host(self, value: Tensor) -> NDArray[Any]:
        """A NumPy view or copy of a device array; waits for it."""

    def profile(self, directory: str) -> AbstractContextManager[None]:
        """Write a TensorBoard profile of what runs inside the context."""
