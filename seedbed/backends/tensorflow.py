"""TensorFlow: the default, and the fastest on CPUs. Only this file imports TensorFlow."""

# ruff: noqa: E402  TensorFlow is imported after its environment is set.

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
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

import tensorflow as tf
from typing_extensions import override

from seedbed.backends.gpu_memory import gpu_memory_bytes
from seedbed.backends.protocol import Backend
from seedbed.backends.roles import Split
from seedbed.backends.tables import DeviceTables, InferenceFunction, Tables, TensorDict
from seedbed.backends.trainer import LossFunction, Trainer
from seedbed.types import Params, Tensor

tf.get_logger().setLevel("ERROR")
log = logging.getLogger(__name__)

_ROW_PARTS = 4


def _traced(function: Callable[..., Any], jit_compile: bool | None = None) -> Callable[..., Any]:
    """Return a function that TensorFlow traces, without its rewriting of Python's if and while.

    No tensor decides one here, and the rewriting took three quarters of a start's tracing.
    """
    traced: Callable[..., Any] = tf.function(function, autograph=False, jit_compile=jit_compile)
    return traced


class TensorFlowTables(DeviceTables, Tables):
    """Tables on the device. Each is a variable."""

    def __init__(
        self, specs: Mapping[str, tuple[int, ArraySpec]], acting: int | None = None
    ) -> None:
        self._variables = {
            name: tf.Variable(tf.zeros((rows, *spec.shape), spec.dtype), trainable=False)
            for name, (rows, spec) in specs.items()
        }

    @override
    def take(self, name: str, index: Tensor) -> Tensor:
        return tf.gather(self._variables[name], index)

    @override
    def put(self, name: str, index: Tensor, rows: Tensor) -> None:
        table = self._variables[name]
        if 0 not in table.shape:  # not a table of empty rows
            tf.raw_ops.ResourceScatterUpdate(resource=table.handle, indices=index, updates=rows)

    @override
    def compile(
        self, function: Callable[..., Any], donated: tuple[int, ...] = ()
    ) -> Callable[..., Any]:
        compiled: Callable[..., Any] = _traced(lambda *arrays: function(self, *arrays))
        return compiled

    @override
    def compile_inference(self, function: Callable[..., TensorDict]) -> InferenceFunction:
        compiled = _Compiled(partial(function, self))
        form: Any = None

        def run(params: Params, slots: Tensor, inputs: TensorDict) -> TensorDict:
            nonlocal form
            tensors = {name: tf.convert_to_tensor(array) for name, array in inputs.items()}
            if form is None:
                form = compiled.trace(
                    [tf.TensorSpec(p.shape, p.dtype) for p in params],
                    tf.TensorSpec([None], tf.int32),
                    {n: tf.TensorSpec([None, *t.shape[1:]], t.dtype) for n, t in tensors.items()},
                )
            arrays = tf.nest.flatten((params, tf.convert_to_tensor(slots), tensors))
            outputs: TensorDict = form(arrays)
            return outputs

        return run

    @override
    def read(self) -> dict[str, NDArray[Any]]:
        return {name: np.array(v.numpy()) for name, v in self._variables.items()}


class TensorFlowTrainer(Trainer):
    """A compiled training step. It works on variables and publishes their values.

    A value that was read never changes afterwards, because TensorFlow copies a variable's buffer
    on an update while there is another reference to it.
    """

    _to_device = staticmethod(tf.convert_to_tensor)

    @override
    def _read_variables(self) -> None:
        import keras

        self._variables = [v.value for v in self._model.trainable_variables]
        self._params, self._slots = self._copies(), []
        optimizer = self._optimizer
        if type(optimizer) is keras.optimizers.Adam and not optimizer.amsgrad:
            optimizer.update_step = partial(_adam, optimizer)

    @override
    def _compile(
        self, function: Callable[..., Any], donated: tuple[int, ...] = ()
    ) -> Callable[..., Any]:
        # An update is called most, and has arrays alone for arguments.
        return _Compiled(function) if donated else _traced(function)

    @override
    def _compile_ahead(self, step: Callable[..., Any], batch: Mapping[str, ArraySpec]) -> None:
        traced: Any = step  # nothing is computed: tracing takes five sixths of a first step
        own = [
            [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
            for arrays in (self._slots, self._params, self._target)
        ]
        of_batch = {name: tf.TensorSpec(spec.shape, spec.dtype) for name, spec in batch.items()}
        traced.trace(*own, of_batch)

    @override
    def _differentiate(
        self, loss: LossFunction, params: Params, target: Params, batch: TensorDict
    ) -> tuple[Tensor, TensorDict, list[Tensor]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(params)
            value, scalars = loss(params, target, batch)
        found = tape.gradient(value, params, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return value, scalars, found

    @override
    def _optimize(
        self, slots: list[Tensor], params: Params, gradients: list[Tensor], finite: Tensor
    ) -> tuple[list[Tensor], Params]:
        def apply() -> None:
            self._optimizer.apply(gradients, self._model.trainable_variables)

        # A branch of the graph: to choose between old and new values would copy each variable.
        tf.cond(finite, apply, lambda: None)
        return slots, self._copies()

    @override
    def _assigned(self, params: Params) -> Params:
        for variable, array in zip(self._variables, params, strict=True):
            variable.assign(array)
        return params

    @override
    def _assigned_one(self, number: int, array: Tensor) -> Tensor:
        self._variables[number].assign(array)
        return array

    @override
    def _may_pack(self, array: Any) -> bool:
        return isinstance(array, tf.Tensor) and array.dtype == tf.float32 and "GPU" in array.device

    @override
    def _pack(self, arrays: list[Tensor]) -> Tensor:
        return _packed(arrays)

    @override
    def _kept_arrays(self) -> list[Tensor]:
        return [self._optimizer.variables[i].value for i in self._kept]

    @override
    def _set_kept_arrays(self, arrays: list[NDArray[Any]]) -> None:
        for variable, array in zip(self._kept_arrays(), arrays, strict=True):
            variable.assign(array)

    def _copies(self) -> Params:
        return [tf.identity(variable) for variable in self._variables]


class _Compiled:
    """A compiled function of nested arrays, one traced form for each of their shapes.

    `tf.function` looks into all arguments in each call, which takes longer than a small network.
    Here shapes alone choose the form: the dtypes of a function's arguments are always the same.

    Args:
        function: from nests of arrays to a nest of arrays.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._of_shapes: dict[Any, Callable[..., Any]] = {}

    def trace(self, *arguments: Any) -> Callable[..., Any]:
        """Return the form of these arguments, which takes them flat, in one list.

        Args:
            arguments: nests of arrays, or of `tf.TensorSpec` in their place.
        """

        def function(*arrays: Tensor) -> Any:
            return self._function(*tf.nest.pack_sequence_as(arguments, arrays))

        arrays = tf.nest.flatten(arguments)
        form: Any = _traced(function)
        form = form.get_concrete_function(*arrays)
        captured = form.captured_inputs

        def call(arrays: list[Any]) -> Any:
            tensors = [a if isinstance(a, tf.Tensor) else tf.convert_to_tensor(a) for a in arrays]
            return form.inference_fn.call_preflattened([*tensors, *captured])

        self._of_shapes[_shapes(arrays)] = call
        return call

    def __call__(self, *arguments: Any) -> Any:
        arrays = tf.nest.flatten(arguments)
        form = self._of_shapes.get(_shapes(arrays)) or self.trace(*arguments)
        return form(arrays)


def _shapes(arrays: list[Any]) -> tuple[Any, ...]:
    return tuple(array.shape for array in arrays)


def _adam(optimizer: Any, gradient: Tensor, variable: tf.Variable, learning_rate: Tensor) -> None:
    """Make Keras's update of a variable by Adam, in one pass over it in place of ten."""
    index = optimizer._get_variable_index(variable)
    step = tf.cast(optimizer.iterations.value + 1, tf.float32)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=optimizer._momentums[index].value.handle,
        v=optimizer._velocities[index].value.handle,
        beta1_power=tf.pow(optimizer.beta_1, step),
        beta2_power=tf.pow(optimizer.beta_2, step),
        lr=learning_rate,
        beta1=optimizer.beta_1,
        beta2=optimizer.beta_2,
        epsilon=optimizer.epsilon,
        grad=gradient,
    )


@_traced
def _packed(arrays: list[Tensor]) -> Tensor:
    return tf.concat([tf.reshape(array, [-1]) for array in arrays], 0)


class TensorFlowBackend(Backend):
    """The backend of TensorFlow."""

    name = "tensorflow"
    tables = TensorFlowTables
    trainer = TensorFlowTrainer

    def __init__(
        self,
        deterministic: bool = False,
        device: str = "auto",
        precision: str = "float32",
        operation_threads: int = 0,
    ) -> None:
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        # On by default. TensorFloat-32 keeps 10 bits: acting and training, whose batches have other
        # shapes, agree less.
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tensorfloat32")
        if operation_threads:
            try:
                tf.config.threading.set_intra_op_parallelism_threads(operation_threads)
            except RuntimeError:  # a notebook has computed before
                log.warning(
                    "TensorFlow runs in this process already: "
                    "learner.operation_threads %d has no effect",
                    operation_threads,
                )
        self._deterministic = deterministic
        if deterministic:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
            tf.config.experimental.enable_op_determinism()
        for gpu in tf.config.get_visible_devices("GPU"):
            # By default the first process on a GPU takes all of its memory.
            tf.config.experimental.set_memory_growth(gpu, True)

    @property
    @override
    def row_parts(self) -> int:
        # On a CPU two threads of one operation wait for each other longer than operations of two
        # parts do, and a part stays in a core's cache.
        return _ROW_PARTS if self._on_cpu() and not self._deterministic else 1

    @override
    def fused(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        # Otherwise each operation on a CPU goes through memory by itself.
        return _traced(function, jit_compile=True) if self._on_cpu() else function

    def _on_cpu(self) -> bool:
        return self.devices()[0].startswith("cpu")

    @override
    def devices(self) -> list[str]:
        devices = [d.name for d in tf.config.list_logical_devices()]
        names = [name.removeprefix("/device:").lower() for name in devices]
        return sorted(names, key=lambda name: name.startswith("cpu"))

    @override
    def memory_bytes(self) -> int:
        # TensorFlow does not report the memory of a GPU.
        return usable_memory_bytes() if self._on_cpu() else gpu_memory_bytes()

    @override
    def uniform(self, seed: int, counter: Tensor, shape: tuple[int, ...]) -> Tensor:
        counter = tf.reshape(tf.cast(counter, tf.int32), [1])
        return tf.random.stateless_uniform(shape, tf.concat([[seed], counter], 0))

    @override
    def convolve(self, image: Tensor, kernel: Tensor, stride: int) -> Tensor:
        how = {"strides": [1, stride, stride, 1], "padding": "VALID"}

        # No kernel of TensorFlow has sums of another format than its products. Products of
        # bfloat16 numbers are exact in float32; gradients are rounded, as in other layers.
        @tf.custom_gradient
        def function(image: Tensor, kernel: Tensor) -> tuple[Tensor, Any]:
            def backward(gradient: Tensor) -> tuple[Tensor, Tensor]:
                g = {"out_backprop": tf.cast(gradient, tf.bfloat16), **how}
                sizes, shape = tf.shape(image), tf.shape(kernel)
                return (
                    tf.raw_ops.Conv2DBackpropInput(input_sizes=sizes, filter=kernel, **g),
                    tf.raw_ops.Conv2DBackpropFilter(input=image, filter_sizes=shape, **g),
                )

            sums = tf.nn.conv2d(tf.cast(image, tf.float32), tf.cast(kernel, tf.float32), **how)
            return sums, backward

        return function(image, kernel)

    @override
    def transpose(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        # oneDNN moves float32 in a tenth of the time that Eigen takes for bytes.
        last = x.shape[-1]
        if x.dtype != tf.uint8 or last % 4:
            return tf.transpose(x, axes)
        joined = tf.bitcast(tf.reshape(x, [-1, *x.shape[1:-1], last // 4, 4]), tf.float32)
        moved = tf.bitcast(tf.transpose(joined, axes), tf.uint8)
        return tf.reshape(moved, [-1, *moved.shape[1:-2], last])

    @override
    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> TensorDict:
        return {name: tf.convert_to_tensor(array) for name, array in batch.items()}

    @override
    def from_first_host(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return dict(arrays)  # a learner with TensorFlow has one host

    @override
    def divide(self, split: Split) -> None:
        raise NotImplementedError("TensorFlow uses one device")

    @override
    def to_acting(self, params: Params) -> list[Params]:
        return [params]

    @override
    def begin_copies(self, arrays: Sequence[Tensor]) -> None:
        pass  # TensorFlow copies where an array is read

    @override
    def keep_compiled(self, folder: Path) -> None:
        pass  # TensorFlow has no such folder; its start compiles next to nothing

    @override
    def profile(self, directory: str) -> AbstractContextManager[None]:
        profile: AbstractContextManager[None] = tf.profiler.experimental.Profile(directory)
        return profile
