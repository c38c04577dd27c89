"""TensorFlow: the default, and the fastest on CPUs. Only this file imports TensorFlow."""

# ruff: noqa: E402  TensorFlow is imported after its environment is set.

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.allocator import keep_large_blocks
from seedbed.runtime.limits import usable_memory_bytes
from seedbed.spec import ArraySpec

# All before the import: TensorFlow reads the environment when it loads, and allocates from then on.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Off by default on CPUs without AVX-512. There it takes a step of `impala_shallow` from 531 to
# 290 ms of CPU: the gradients of convolutions are three times as fast.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
keep_large_blocks()

import keras
import tensorflow as tf
from typing_extensions import override

from seedbed.backends.clipping import clip_by_global_norm
from seedbed.backends.protocol import (
    Backend,
    DeviceTables,
    InferenceEngine,
    InferenceFunction,
    LossFunction,
    Tables,
    TensorDict,
    Trainer,
)
from seedbed.backends.state import checked, kept_in_checkpoints, layout_of, named_variables
from seedbed.backends.target import TargetNetwork
from seedbed.types import Params, Tensor

tf.get_logger().setLevel("ERROR")


class TensorFlowBackend(Backend):
    """The backend of TensorFlow."""

    name = "tensorflow"

    def __init__(self, deterministic: bool = False, device: str = "auto") -> None:
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        # TensorFloat-32 keeps 10 bits: acting and training, whose batches have other shapes, would
        # no longer agree, and importance weights would be noise.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        if deterministic:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
            tf.config.experimental.enable_op_determinism()
        for gpu in tf.config.get_visible_devices("GPU"):
            # By default the first process on a GPU takes all of its memory.
            tf.config.experimental.set_memory_growth(gpu, True)

    @override
    def devices(self) -> list[str]:
        devices = [d.name for d in tf.config.list_logical_devices()]
        names = [name.removeprefix("/device:").lower() for name in devices]
        return sorted(names, key=lambda name: name.startswith("cpu"))

    @override
    def memory_bytes(self) -> int:
        # TensorFlow does not report the memory of a GPU.
        return usable_memory_bytes() if self.devices()[0].startswith("cpu") else 0

    @override
    def inference(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> TensorFlowInference:
        return TensorFlowInference(function, tables, slots)

    @override
    def tables(self, specs: Mapping[str, tuple[int, ArraySpec]]) -> TensorFlowTables:
        return TensorFlowTables(specs)

    @override
    def uniform(self, seed: int, counter: Tensor, shape: tuple[int, ...]) -> Tensor:
        counter = tf.reshape(tf.cast(counter, tf.int32), [1])
        return tf.random.stateless_uniform(shape, tf.concat([[seed], counter], 0))

    @override
    def trainer(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
        target_update_period: int = 0,
    ) -> TensorFlowTrainer:
        return TensorFlowTrainer(model, optimizer, loss, max_gradient_norm, target_update_period)

    @override
    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> TensorDict:
        return {name: tf.convert_to_tensor(array) for name, array in batch.items()}

    @override
    def to_host(self, value: Tensor) -> NDArray[Any]:
        return np.asarray(value)

    @override
    def profile(self, directory: str) -> AbstractContextManager[None]:
        profile: AbstractContextManager[None] = tf.profiler.experimental.Profile(directory)
        return profile


class TensorFlowInference(InferenceEngine):
    """A compiled inference step. The tables are variables, updated in place."""

    def __init__(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> None:
        self._tables = {
            name: tf.Variable(
                tf.zeros((slots + 1, *spec.shape), spec.dtype), trainable=False, name=name
            )
            for name, spec in tables.items()
        }

        def run(params: Params, slot: Tensor, inputs: TensorDict) -> TensorDict:
            rows = {name: tf.gather(table, slot) for name, table in self._tables.items()}
            outputs, rows = function(params, rows, inputs)
            for name, table in self._tables.items():
                if tables[name].row_bytes:  # not a table of empty rows
                    tf.raw_ops.ResourceScatterUpdate(
                        resource=table.handle, indices=slot, updates=rows[name]
                    )
            return outputs

        self._function = tf.function(run)
        self._run: Any = None  # traced once, for any number of rows

    @override
    def run(
        self, params: Params, slots: NDArray[np.int32], inputs: Mapping[str, NDArray[Any]]
    ) -> TensorDict:
        tensors = {name: tf.convert_to_tensor(array) for name, array in inputs.items()}
        if self._run is None:
            self._run = self._function.get_concrete_function(
                [tf.TensorSpec(p.shape, p.dtype) for p in params],
                tf.TensorSpec([None], tf.int32),
                {n: tf.TensorSpec([None, *t.shape[1:]], t.dtype) for n, t in tensors.items()},
            )
        outputs: TensorDict = self._run(params, tf.convert_to_tensor(slots), tensors)
        return outputs

    @override
    def read(self, name: str, slots: NDArray[np.int32]) -> NDArray[Any]:
        return np.asarray(tf.gather(self._tables[name], slots))


class TensorFlowTables(DeviceTables):
    """Tables on the device. Each is a variable."""

    def __init__(self, specs: Mapping[str, tuple[int, ArraySpec]]) -> None:
        self._variables = {
            name: tf.Variable(tf.zeros((rows, *spec.shape), spec.dtype), trainable=False)
            for name, (rows, spec) in specs.items()
        }

    @override
    def take(self, name: str, index: Tensor) -> Tensor:
        return tf.gather(self._variables[name], index)

    @override
    def put(self, name: str, index: Tensor, rows: Tensor) -> None:
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._variables[name].handle, indices=index, updates=rows
        )

    @override
    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = tf.function(lambda *arrays: function(self, *arrays))

        def run(*arrays: Any) -> Any:
            return compiled(*tf.nest.map_structure(tf.convert_to_tensor, arrays))

        return run

    @override
    def read(self) -> dict[str, NDArray[Any]]:
        return {name: np.array(v.numpy()) for name, v in self._variables.items()}

    @override
    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for name, variable in self._variables.items():
            variable.assign(arrays[name])


class TensorFlowTrainer(Trainer):
    """A compiled training step. It works on variables and publishes their values.

    A value that was read never changes afterwards, because TensorFlow copies a variable's buffer
    on an update while there is another reference to it.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
        target_update_period: int = 0,
    ) -> None:
        optimizer.build(model.trainable_variables)
        self._variables = [v.value for v in model.trainable_variables]
        self._model = model
        self._names, names = named_variables(model, optimizer)
        kept = kept_in_checkpoints(names)
        self._kept = [optimizer.variables[i] for i in kept]
        self._kept_names = [names[i] for i in kept]

        def gradients(target: Params, batch: TensorDict) -> tuple[TensorDict, list[Tensor]]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                params = [tf.convert_to_tensor(v) for v in self._variables]
                tape.watch(params)
                value, scalars = loss(params, target, batch)
            found: list[Tensor] = tape.gradient(
                value, params, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            return {**scalars, "loss": value}, found

        def apply(found: list[Tensor]) -> tuple[Tensor, Params]:
            found, norm = clip_by_global_norm(found, max_gradient_norm)
            optimizer.apply(found, model.trainable_variables)
            return norm, self._copies()

        def step(target: Params, batch: TensorDict) -> tuple[TensorDict, Params]:
            outputs, found = gradients(target, batch)
            norm, params = apply(found)
            return {**outputs, "gradient_norm": norm}, params

        self._update = step
        self._step = tf.function(step)

        def put(params: Params, others: list[Tensor], combine: Callable[..., Tensor]) -> Params:
            mixed, start = [], 0
            for variable, array in zip(self._variables, params, strict=True):
                stop = start + array.shape.num_elements()
                mixed.append(
                    combine(array, [tf.reshape(other[start:stop], array.shape) for other in others])
                )
                variable.assign(mixed[-1])
                start = stop
            return mixed

        def mix(params: Params, own: Tensor, weights: list[Tensor], others: list[Tensor]) -> Params:
            def combine(array: Tensor, received: list[Tensor]) -> Tensor:
                array *= own
                for weight, message in zip(weights, received, strict=True):
                    array += weight * message
                return array

            return put(params, others, combine)

        def mean(params: Params, share: Tensor, others: list[Tensor]) -> Params:
            """Mix with equal weights: a buffer and two passes over it less than `mix`."""

            def combine(array: Tensor, received: list[Tensor]) -> Tensor:
                for message in received:
                    array += message
                return array * share

            return put(params, others, combine)

        self._mix, self._mean = tf.function(mix), tf.function(mean)
        self._gradients, self._apply = tf.function(gradients), tf.function(apply)
        self._params = self._copies()
        self._target = TargetNetwork(self._names, self._params, target_update_period)

    @override
    def step(self, batch: TensorDict) -> TensorDict:
        scalars, self._params = self._step(self._target.params, batch)
        self._target.on_update(self._params)
        result: TensorDict = scalars
        return result

    @override
    def gradients(self, batch: TensorDict) -> tuple[TensorDict, list[Tensor]]:
        outputs, gradients = self._gradients(self._target.params, batch)
        return outputs, gradients

    @override
    def apply(self, gradients: list[Tensor]) -> Tensor:
        norm, self._params = self._apply([tf.convert_to_tensor(g) for g in gradients])
        self._target.on_update(self._params)
        return norm

    @override
    def fuse(
        self,
        tables: DeviceTables,
        sample: Callable[[Tables], TensorDict],
        set_priorities: Callable[[Tables, TensorDict, TensorDict], None],
    ) -> Callable[[], TensorDict]:

        @tf.function
        def step(target: Params) -> tuple[TensorDict, Params]:
            batch = sample(tables)
            outputs, params = self._update(target, batch)
            set_priorities(tables, batch, outputs)
            return outputs, params

        def run() -> TensorDict:
            outputs, self._params = step(self._target.params)
            self._target.on_update(self._params)
            result: TensorDict = outputs
            return result

        return run

    @override
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        return layout_of(self._names, self._params)

    @override
    def set_params(self, arrays: list[NDArray[np.float32]]) -> None:
        for variable, array in zip(self._variables, arrays, strict=True):
            variable.assign(array)
        self._params = self._copies()

    @override
    def mix(self, own: float, others: Sequence[tuple[float, NDArray[np.float32]]]) -> None:
        share = tf.constant(own, tf.float32)
        values = [tf.convert_to_tensor(other) for _, other in others]
        if all(abs(weight - own) < 1e-9 for weight, _ in others):
            self._params = self._mean(self._params, share, values)
        else:
            weights = [tf.constant(weight, tf.float32) for weight, _ in others]
            self._params = self._mix(self._params, share, weights, values)

    @override
    def params(self) -> Params:
        return self._params

    @override
    def state(self) -> dict[str, NDArray[Any]]:
        arrays = [*self._params, *(v.value for v in self._kept)]
        names = [*self._names, *self._kept_names]
        state = {name: np.array(array.numpy()) for name, array in zip(names, arrays, strict=True)}
        return {**state, **self._target.state()}

    @override
    def load(self, state: Mapping[str, NDArray[Any]], optimizer: bool = True) -> None:
        variables = list(self._model.trainable_variables)
        arrays = checked(self._names, variables, state, "model/")
        if optimizer:
            variables += self._kept
            arrays += checked(self._kept_names, self._kept, state, "optimizer/")
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        self._params = self._copies()
        self._target.load(state if optimizer else {}, self._params, tf.convert_to_tensor)

    def _copies(self) -> Params:
        return [tf.identity(variable) for variable in self._variables]
