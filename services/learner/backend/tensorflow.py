"""TensorFlow: the default, and the fastest on CPUs. This file alone imports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.common.spec import ArraySpec
from services.learner.backend.memory import keep_large_blocks
from services.learner.backend.quiet import without_greetings

# All before the import: TensorFlow reads the environment when it loads, and allocates from then on.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Off by default on CPUs without AVX-512. There it takes a step of `impala_shallow` from 531 to
# 290 ms of CPU: the gradients of convolutions are three times as fast.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
keep_large_blocks()

with without_greetings():
    import keras
    import tensorflow as tf

from services.learner.backend.clipping import clip_by_global_norm  # noqa: E402
from services.learner.backend.protocol import (  # noqa: E402
    InferenceFunction,
    LossFunction,
    Params,
    Rows,
    Tensor,
)
from services.learner.backend.state import checked, kept_in_checkpoints, named_variables  # noqa: E402

tf.get_logger().setLevel("ERROR")


class TensorFlowBackend:
    """See `backend.protocol.Backend`."""

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
        with without_greetings():
            for gpu in tf.config.get_visible_devices("GPU"):
                # Or the first process on a GPU takes all of its memory.
                tf.config.experimental.set_memory_growth(gpu, True)
            tf.transpose(tf.zeros((1, 2), "uint8"))  # oneDNN says once what it lacks

    def devices(self) -> list[str]:
        """See the protocol."""
        devices = [d.name for d in tf.config.list_logical_devices()]
        names = [name.removeprefix("/device:").lower() for name in devices]
        return sorted(names, key=lambda name: name.startswith("cpu"))

    def scan(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        initial: Any,
        inputs: Any,
        reverse: bool = False,
    ) -> tuple[Any, Any]:
        """See the protocol. `keras.ops.scan` fails here where carry and outputs differ."""
        leaves = tf.nest.flatten(inputs)
        if reverse:
            leaves = [tf.reverse(leaf, [0]) for leaf in leaves]
        length = leaves[0].shape[0]

        def row(index: Any) -> Any:
            return tf.nest.pack_sequence_as(inputs, [leaf[index] for leaf in leaves])

        # The first step is outside of the loop, to know what the outputs look like.
        carry, first = function(initial, row(0))
        arrays = [
            tf.TensorArray(leaf.dtype, size=length, element_shape=leaf.shape).write(0, leaf)
            for leaf in tf.nest.flatten(first)
        ]

        def body(index: Any, carry: Any, arrays: Any) -> Any:
            carry, out = function(carry, row(index))
            written = [
                array.write(index, leaf)
                for array, leaf in zip(arrays, tf.nest.flatten(out), strict=True)
            ]
            return index + 1, carry, written

        _, carry, arrays = tf.while_loop(
            lambda index, *_: index < length, body, (tf.constant(1), carry, arrays)
        )
        stacked = [array.stack() for array in arrays]
        if reverse:
            stacked = [tf.reverse(leaf, [0]) for leaf in stacked]
        return carry, tf.nest.pack_sequence_as(first, stacked)

    def inference(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> TensorFlowInference:
        """See the protocol."""
        return TensorFlowInference(function, tables, slots)

    def trainer(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
    ) -> TensorFlowTrainer:
        """See the protocol."""
        return TensorFlowTrainer(model, optimizer, loss, max_gradient_norm)

    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> Rows:
        """See the protocol."""
        return {name: tf.convert_to_tensor(array) for name, array in batch.items()}

    def to_host(self, value: Tensor) -> NDArray[Any]:
        """See the protocol."""
        return np.asarray(value)

    def profile(self, directory: str) -> AbstractContextManager[None]:
        """See the protocol."""
        profile: AbstractContextManager[None] = tf.profiler.experimental.Profile(directory)
        return profile


class TensorFlowInference:
    """See `backend.protocol.InferenceEngine`. The tables are variables, updated in place."""

    def __init__(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> None:
        self._tables = {
            name: tf.Variable(
                tf.zeros((slots + 1, *spec.shape), spec.dtype), trainable=False, name=name
            )
            for name, spec in tables.items()
        }

        def run(params: Params, slot: Tensor, inputs: Rows) -> Rows:
            rows = {name: tf.gather(table, slot) for name, table in self._tables.items()}
            outputs, rows = function(params, rows, inputs)
            for name, table in self._tables.items():
                if tables[name].row_bytes:  # a table without columns has nothing to keep
                    tf.raw_ops.ResourceScatterUpdate(
                        resource=table.handle, indices=slot, updates=rows[name]
                    )
            return outputs

        self._function = tf.function(run)
        self._run: Any = None  # traced once, for any number of rows

    def run(
        self, params: Params, slots: NDArray[np.int32], inputs: Mapping[str, NDArray[Any]]
    ) -> Rows:
        """See the protocol."""
        tensors = {name: tf.convert_to_tensor(array) for name, array in inputs.items()}
        if self._run is None:
            self._run = self._function.get_concrete_function(
                [tf.TensorSpec(p.shape, p.dtype) for p in params],
                tf.TensorSpec([None], tf.int32),
                {n: tf.TensorSpec([None, *t.shape[1:]], t.dtype) for n, t in tensors.items()},
            )
        outputs: Rows = self._run(params, tf.convert_to_tensor(slots), tensors)
        return outputs

    def read(self, name: str, slots: NDArray[np.int32]) -> NDArray[Any]:
        """See the protocol."""
        return np.asarray(tf.gather(self._tables[name], slots))


class TensorFlowTrainer:
    """See `backend.protocol.Trainer`. The step works on variables and publishes their values.

    A value that was read is never changed afterwards: TensorFlow copies a variable's buffer on
    an update while somebody else holds it.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
    ) -> None:
        optimizer.build(model.trainable_variables)
        self._variables = [v.value for v in model.trainable_variables]
        self._model = model
        self._names, names = named_variables(model, optimizer)
        kept = kept_in_checkpoints(names)
        self._kept = [optimizer.variables[i] for i in kept]
        self._kept_names = [names[i] for i in kept]

        def step(batch: Rows) -> tuple[dict[str, Tensor], Params]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                params = [tf.convert_to_tensor(v) for v in self._variables]
                tape.watch(params)
                value, scalars = loss(params, batch)
            gradients = tape.gradient(
                value, params, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            gradients, norm = clip_by_global_norm(gradients, max_gradient_norm)
            optimizer.apply(gradients, model.trainable_variables)
            return {**scalars, "loss": value, "gradient_norm": norm}, self._copies()

        self._step = tf.function(step)
        self._params = self._copies()

    def step(self, batch: Rows) -> dict[str, Tensor]:
        """See the protocol."""
        scalars, self._params = self._step(batch)
        result: dict[str, Tensor] = scalars
        return result

    def params(self) -> Params:
        """See the protocol."""
        return self._params

    def state(self) -> dict[str, NDArray[Any]]:
        """See the protocol."""
        arrays = [*self._params, *(v.value for v in self._kept)]
        names = [*self._names, *self._kept_names]
        return {name: np.array(array.numpy()) for name, array in zip(names, arrays, strict=True)}

    def load(self, state: Mapping[str, NDArray[Any]], optimizer: bool = True) -> None:
        """See the protocol."""
        variables = list(self._model.trainable_variables)
        arrays = checked(self._names, variables, state, "model/")
        if optimizer:
            variables += self._kept
            arrays += checked(self._kept_names, self._kept, state, "optimizer/")
        for variable, array in zip(variables, arrays, strict=True):
            variable.assign(array)
        self._params = self._copies()

    def _copies(self) -> Params:
        return [tf.identity(variable) for variable in self._variables]
