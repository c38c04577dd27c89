"""Trainer: the compiled training step of an agent, its parameters and its state."""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seedbed.backends.state import SETTINGS, checked, named_variables
from seedbed.backends.tables import DeviceTables, Tables, TensorDict
from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor

if TYPE_CHECKING:  # Keras is imported by `use`, once its backend is chosen
    import keras

# From parameters, those of the target network, and a batch to the loss and other outputs.
LossFunction = Callable[[Params, Params, TensorDict], tuple[Tensor, TensorDict]]


class Trainer(ABC):
    """A compiled training step. One thread calls it, but `apply` and `state` take turns.

    An update whose loss or gradient norm is not finite is skipped: parameters, optimizer and target
    network stay as they were, bit for bit, and the `gradient_norm` that it returns is not finite.
    This is decided where the update is computed, by the gradients that are applied and nothing
    else, so learners that apply the same gradients decide alike.

    The target network is a reference to published parameters of some updates ago. Since those
    never change, setting it costs nothing.

    Args:
        model: the model, built.
        optimizer: the optimizer, not built.
        loss: from parameters, those of the target network, and a batch to the loss and other
            outputs.
        max_gradient_norm: global norm at which gradients are clipped; 0 does not clip.
        target_update_period: updates after which the target network is set to the parameters;
            0 is an agent without one, whose loss is given an empty list.
    """

    # The newest parameters, and the optimizer's arrays, unless they are variables.
    _params: Params
    _slots: list[Tensor]
    # From an array to one on the device, which may share the memory of the one on the host.
    _to_device: Callable[[Any], Tensor]

    def __init__(
        self,
        model: "keras.Model",
        optimizer: "keras.optimizers.Optimizer",
        loss: LossFunction,
        max_gradient_norm: float,
        target_update_period: int = 0,
    ) -> None:
        # It imports Keras, whose backend is chosen by now.
        from keras import ops

        from seedbed.backends.arithmetic import clip_by_global_norm, mixed, updated_statistics

        optimizer.build(model.trainable_variables)
        self._model, self._optimizer = model, optimizer
        self._names, optimizer_names = named_variables(model, optimizer)
        self._kept = [i for i, name in enumerate(optimizer_names) if name not in SETTINGS]
        self._kept_names = [optimizer_names[i] for i in self._kept]
        self._read_variables()
        variables = model.trainable_variables
        is_statistics = [getattr(v, "is_statistics", False) for v in variables]
        self._statistics = [i for i, found in enumerate(is_statistics) if found]
        learned = is_statistics.index(False)
        self._target_names = [name.replace("model/", "target/", 1) for name in self._names]
        self._target_update_period = target_update_period
        self._target = self._params if target_update_period else []
        self._target_age = 0
        # Gradients of peers are applied in another thread, where learners share parameters.
        self._turn = threading.Lock()
        # The newest update's parameters and gradient norm, until the target network counts it.
        self._uncounted: tuple[Params, Tensor] | None = None

        def gradients(
            params: Params, target: Params, batch: TensorDict
        ) -> tuple[TensorDict, list[Tensor]]:
            value, scalars, found = self._differentiate(loss, params, target, batch)
            # A loss that is not finite can have finite gradients. One NaN makes their norm NaN.
            found[learned] = ops.where(ops.isfinite(value), found[learned], np.nan)
            return {**scalars, "loss": value}, found

        def apply(
            slots: list[Tensor], params: Params, found: list[Tensor]
        ) -> tuple[list[Tensor], Params, Tensor]:
            to_learn = list(found)
            for i in self._statistics:
                to_learn[i] = ops.zeros_like(found[i])
            to_learn, norm = clip_by_global_norm(to_learn, max_gradient_norm)
            finite = ops.isfinite(norm)
            slots, new = self._optimize(slots, params, to_learn, finite)
            for i in self._statistics:
                statistics = updated_statistics(params[i], found[i])
                new[i] = self._assigned_one(i, ops.where(finite, statistics, params[i]))
            return slots, new, norm

        def update(
            slots: list[Tensor], params: Params, target: Params, batch: TensorDict
        ) -> tuple[list[Tensor], Params, TensorDict]:
            outputs, found = gradients(params, target, batch)
            slots, params, norm = apply(slots, params, found)
            return slots, params, {**outputs, "gradient_norm": norm}

        def mix(params: Params, *weighted: Any) -> Params:
            return self._assigned(mixed(params, *weighted))

        self._update = update
        self._step = self._compile(update, donated=(0,))
        self._apply = self._compile(apply, donated=(0,))
        self._gradients, self._mix = self._compile(gradients), self._compile(mix)

    def step(self, batch: TensorDict) -> TensorDict:
        """Make one update, or skip it. Return the loss's outputs, `loss` and `gradient_norm`.

        Args:
            batch: arrays on the device, as the loss takes them.
        """
        return self._run(self._step, batch)

    def compile_step(self, batch: Mapping[str, ArraySpec]) -> None:
        """Compile `step` before the first batch comes. Any batch of other arrays compiles anew.

        Args:
            batch: shape and dtype of each array of a batch, by name.
        """
        self._compile_ahead(self._step, batch)

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

        def update(
            tables: Tables, slots: list[Tensor], params: Params, target: Params
        ) -> tuple[list[Tensor], Params, TensorDict]:
            batch = sample(tables)
            slots, params, outputs = self._update(slots, params, target, batch)
            set_priorities(tables, batch, outputs)
            return slots, params, outputs

        return partial(self._run, tables.compile(update, donated=(0,)))

    def _run(self, update: Callable[..., Any], *batch: TensorDict) -> TensorDict:
        outputs: TensorDict
        self._count_for_target()
        self._slots, self._params, outputs = update(self._slots, self._params, self._target, *batch)
        self._uncounted = self._params, outputs["gradient_norm"]
        return outputs

    def _count_for_target(self) -> None:
        """Count the newest update for the target network, unless it was skipped.

        Called late, when its gradient norm has been fetched already: nothing waits for the device.
        """
        if not self._target_update_period or self._uncounted is None:
            return
        (params, norm), self._uncounted = self._uncounted, None
        if np.isfinite(np.asarray(norm)):
            self._target_age += 1
            if self._target_age >= self._target_update_period:
                self._target, self._target_age = params, 0

    def fetch(self, outputs: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
        """Return the outputs of the newest update on the host, in one transfer from an accelerator.

        Args:
            outputs: arrays or numbers by name, as `step` returns them.
        """
        packed = [name for name, array in outputs.items() if self._may_pack(array)]
        fetched = {name: np.asarray(outputs[name]) for name in outputs if name not in packed}
        if packed:
            arrays = [outputs[name] for name in packed]
            shapes = [tuple(array.shape) for array in arrays]
            ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
            parts = np.split(np.asarray(self._pack(arrays)), ends[:-1])
            for name, shape, part in zip(packed, shapes, parts, strict=True):
                fetched[name] = part.reshape(shape)
        if self._uncounted is not None and "gradient_norm" in fetched:
            self._uncounted = self._uncounted[0], fetched["gradient_norm"]
        return fetched

    def gradients(
        self, batch: TensorDict, params: Params | None = None
    ) -> tuple[TensorDict, list[Tensor]]:
        """Make the first half of `step`.

        Args:
            batch: as of `step`.
            params: parameters at which the gradients are computed; None for the newest ones.

        Returns:
            The loss's outputs and `loss`; and the gradients, not clipped, in the order of the
            parameters. Where the loss is not finite, neither are they.
        """
        self._count_for_target()
        params = self._params if params is None else params
        outputs, gradients = self._gradients(params, self._target, batch)
        return outputs, gradients

    def apply(self, gradients: list[Tensor]) -> Tensor:
        """Make the second half of `step`: clip, then update or skip. Return the norm before it.

        Args:
            gradients: one array for each parameter, on the host or on the device.
        """
        with self._turn:
            self._slots, self._params, norm = self._apply(
                self._slots, self._params, [self._to_device(g) for g in gradients]
            )
            self._uncounted = self._params, norm
            return norm

    def state_bytes(self) -> int:
        """Return the memory of what `state` names, in bytes, with one copy of the parameters."""
        params = sum(4 * math.prod(shape) for _, shape in self.layout())
        slots = [v for v in self._optimizer.variables if v.ndim]
        kept: int = sum(np.dtype(v.dtype).itemsize * math.prod(v.shape) for v in slots)
        return params * (2 if self._target_update_period else 1) + kept

    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return names and shapes of the parameters, in their order."""
        names = [name.removeprefix("model/") for name in self._names]
        return list(zip(names, [tuple(array.shape) for array in self._params], strict=True))

    def set_params(self, arrays: list[NDArray[np.float32]]) -> None:
        """Replace the parameters, but neither the optimizer's state nor the target network.

        Args:
            arrays: new values, each in the shape [...] of its parameter, which must not be written
                to afterwards.
        """
        self._params = self._assigned([self._to_device(array) for array in arrays])

    def mix(self, own: float, others: Sequence[tuple[float, NDArray[np.float32]]]) -> None:
        """Replace the parameters by a weighted sum of them and of others, compiled.

        Args:
            own: weight of the parameters.
            others: weight and flat buffer [d], in the order of `layout`, of each other.
        """
        equal = all(abs(weight - own) < 1e-9 for weight, _ in others)
        weights = None if equal else [np.float32(weight) for weight, _ in others]
        received = [self._to_device(other) for _, other in others]
        self._params = self._mix(self._params, np.float32(own), weights, received)

    def params(self) -> Params:
        """Return the newest parameters. The returned arrays never change afterwards."""
        return self._params

    def state(self) -> dict[str, NDArray[Any]]:
        """Return `model/PATH`, `optimizer/PATH` and, with a target network, `target/PATH` arrays.

        They are on the host, and the same under both backends. `target_age` counts the updates
        since the target network was set.
        """
        with self._turn:
            self._count_for_target()
            arrays = zip(self._names, self._params, strict=True)
            kept = zip(self._kept_names, self._kept_arrays(), strict=True)
            state = {name: np.array(array) for name, array in (*arrays, *kept)}
        if self._target_update_period:
            target = zip(self._target_names, self._target, strict=True)
            state |= {name: np.array(array) for name, array in target}
            state["target_age"] = np.array(self._target_age)
        return state

    def load(self, state: Mapping[str, NDArray[Any]], optimizer: bool = True) -> None:
        """Restore the output of `state`. A target network that is not in it is set anew.

        Args:
            state: arrays by name.
            optimizer: False restores only the model (a warm start).

        Raises:
            SeedbedError: CHECKPOINT_READ: names or shapes differ.
        """
        params = checked(self._names, self._params, state, "model/")
        if optimizer:
            arrays = checked(self._kept_names, self._kept_arrays(), state, "optimizer/")
            self._set_kept_arrays(arrays)
        self.set_params(params)
        self._uncounted = None
        if self._target_update_period:
            self._target, self._target_age = self._params, 0
            if optimizer and "target_age" in state:
                arrays = checked(self._target_names, self._params, state, "target/")
                self._target = [self._to_device(array) for array in arrays]
                self._target_age = int(state["target_age"])

    # --- what a backend adds ---------------------------------------------------------------

    @abstractmethod
    def _may_pack(self, array: Any) -> bool:
        """Return whether `_pack` takes an array: float32, and wholly on this host's accelerators.

        On a CPU nothing is packed, because reading copies nothing there.
        """

    @abstractmethod
    def _pack(self, arrays: list[Tensor]) -> Tensor:
        """Join float32 arrays of any shapes in one vector on the device, compiled."""

    @abstractmethod
    def _read_variables(self) -> None:
        """Set `_params` and `_slots` from the variables of the model and of the optimizer."""

    @abstractmethod
    def _compile(
        self, function: Callable[..., Any], donated: tuple[int, ...] = ()
    ) -> Callable[..., Any]:
        """Compile a function of arrays, as `DeviceTables.compile` does."""

    @abstractmethod
    def _compile_ahead(self, step: Callable[..., Any], batch: Mapping[str, ArraySpec]) -> None:
        """Compile a step, a result of `_compile`, for the trainer's arrays and a batch."""

    @abstractmethod
    def _differentiate(
        self, loss: LossFunction, params: Params, target: Params, batch: TensorDict
    ) -> tuple[Tensor, TensorDict, list[Tensor]]:
        """Return the loss, its other outputs, and its gradients by the parameters."""

    @abstractmethod
    def _optimize(
        self, slots: list[Tensor], params: Params, gradients: list[Tensor], finite: Tensor
    ) -> tuple[list[Tensor], Params]:
        """Apply the optimizer if `finite`. Return its new arrays and the new parameters."""

    def _assigned(self, params: Params) -> Params:
        """Return new parameters, after the model's variables have them, if those are in use."""
        return params

    def _assigned_one(self, number: int, array: Tensor) -> Tensor:
        """Return a new parameter, after the model's variable has it, if those are in use."""
        return array

    @abstractmethod
    def _kept_arrays(self) -> list[Tensor]:
        """Return the optimizer's arrays that a checkpoint keeps, of the indices `_kept`."""

    @abstractmethod
    def _set_kept_arrays(self, arrays: list[NDArray[Any]]) -> None:
        """Replace the arrays of `_kept_arrays`."""
