"""Interface of a backend: compiled inference, compiled training, and arrays on the device.

`tensorflow.py` and `jax.py` implement it; only they import TensorFlow or JAX.
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

TensorDict = dict[str, Tensor]
InferenceFunction = Callable[[Params, TensorDict, TensorDict], tuple[TensorDict, TensorDict]]
# From parameters, those of the target network, and a batch to the loss and other outputs.
LossFunction = Callable[[Params, Params, TensorDict], tuple[Tensor, TensorDict]]


class Tables(Protocol):
    """Arrays that stay on the device. Compiled functions change them in place."""

    def take(self, name: str, index: Tensor) -> Tensor:
        """Return rows of a table at `index`, an integer tensor of any shape."""

    def put(self, name: str, index: Tensor, rows: Tensor) -> None:
        """Replace the rows at `index` [N]. Where an index occurs twice, either row stays."""


class DeviceTables(Tables, Protocol):
    """Tables, zero at first. One thread calls the functions that are compiled on them."""

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Compile `function(tables, *arrays) -> outputs`, which may change the tables.

        Returns:
            A function from the arrays to the outputs on the device.
        """

    def read(self) -> dict[str, NDArray[Any]]:
        """Return all tables, on the host."""

    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace all tables by arrays of their shapes."""


class InferenceEngine(Protocol):
    """A compiled inference step over device tables of one row a slot. One thread calls it."""

    def run(
        self, params: Params, slots: NDArray[np.int32], inputs: Mapping[str, NDArray[Any]]
    ) -> TensorDict:
        """Gather the tables' rows, call `function(params, rows, inputs)`, scatter the new rows.

        Args:
            params: the parameters that act.
            slots: [N], distinct except for padding, which names the tables' last row.
            inputs: arrays [N, ...].

        Returns:
            The outputs of the function, on the device.
        """

    def read(self, name: str, slots: NDArray[np.int32]) -> NDArray[Any]:
        """Return rows of a table, on the host."""


class Trainer(Protocol):
    """A compiled training step. One thread calls it."""

    def step(self, batch: TensorDict) -> TensorDict:
        """Make one update. Return the loss's outputs, `loss` and `gradient_norm`, on the device."""

    def fuse(
        self,
        tables: DeviceTables,
        sample: Callable[[Tables], TensorDict],
        set_priorities: Callable[[Tables, TensorDict, TensorDict], None],
    ) -> Callable[[], TensorDict]:
        """Compile an update whose batch comes from tables.

        Args:
            tables: the tables, made by the same backend.
            sample: makes the batch from the tables.
            set_priorities: takes the tables, the batch, and the loss's outputs.

        Returns:
            A function like `step`, without a batch.
        """

    def gradients(self, batch: TensorDict) -> tuple[TensorDict, list[Tensor]]:
        """Make the first half of `step`.

        Returns:
            The loss's outputs and `loss`; and the gradients, not clipped, in the order of the
            parameters.
        """

    def apply(self, gradients: list[Tensor]) -> Tensor:
        """Make the second half of `step`, clip and update. Return the norm before clipping."""

    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return names and shapes of the parameters, in their order."""

    def set_params(self, arrays: list[NDArray[np.float32]]) -> None:
        """Replace the parameters, but neither the optimizer's state nor the target network.

        Args:
            arrays: new values, which must not be written to afterwards.
        """

    def mix(self, own: float, others: Sequence[tuple[float, NDArray[np.float32]]]) -> None:
        """Replace the parameters by a weighted sum of them and of others, compiled.

        Args:
            own: weight of the parameters.
            others: weight and flat buffer [d], in the order of `layout`, of each other.
        """

    def params(self) -> Params:
        """Return the newest parameters. The returned arrays never change afterwards."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Return `model/PATH`, `optimizer/PATH` and, with a target network, `target/PATH` arrays.

        They are on the host, and the same under both backends.
        """

    def load(self, state: Mapping[str, NDArray[Any]], optimizer: bool = True) -> None:
        """Restore the output of `state`.

        Args:
            state: arrays by name.
            optimizer: False restores only the model (a warm start).

        Raises:
            SeedbedError: CHECKPOINT_READ: names or shapes differ.
        """


class Backend(Protocol):
    """A library of arrays and compiled functions. A process has one, because Keras has one."""

    name: str

    def devices(self) -> list[str]:
        """Return the devices that this process can use, such as `gpu:0`, accelerators first."""

    def memory_bytes(self) -> int:
        """Return the memory of the first device, in bytes; 0 if it is unknown."""

    def inference(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> InferenceEngine:
        """Compile an inference step.

        Args:
            function: from parameters, rows and inputs to outputs and new rows.
            tables: specs of one row, by name. A table has slots + 1 rows, zero at first; the last
                one is for padding.
            slots: rows of a table, without the last one.
        """

    def tables(self, specs: Mapping[str, tuple[int, ArraySpec]]) -> DeviceTables:
        """Create tables by name, each with a number of rows and the spec of one."""

    def uniform(self, seed: int, counter: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Draw float32 in [0, 1) on the device; the same for the same seed and counter [1]."""

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
            model: the model, built.
            optimizer: the optimizer, not built.
            loss: from parameters, those of the target network, and a batch to the loss and other
                outputs.
            max_gradient_norm: global norm at which gradients are clipped; 0 does not clip.
            target_update_period: updates after which the target network is set to the parameters;
                0 is an agent without one, whose loss is given an empty list.
        """

    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> TensorDict:
        """Copy arrays to the device. The NumPy arrays must not be written to afterwards."""

    def to_host(self, value: Tensor) -> NDArray[Any]:
        """Return a NumPy view or copy of a device array, once it is computed."""

    def profile(self, directory: str) -> AbstractContextManager[None]:
        """Write a TensorBoard profile of what runs inside the context."""
