"""JAX: the way to TPUs. Only this file imports JAX, and nothing here imports TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.limits import usable_memory_bytes
from seedbed.spec import ArraySpec

# XLA's own log, before it is loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax
import jax.numpy as jnp
import keras
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


class JaxBackend(Backend):
    """The backend of JAX."""

    name = "jax"

    def __init__(self, deterministic: bool = False, device: str = "auto") -> None:
        # TensorFloat-32 and bfloat16 products: acting and training, whose batches have other
        # shapes, would no longer agree, and importance weights would be noise.
        jax.config.update("jax_default_matmul_precision", "float32")  # type: ignore[no-untyped-call]
        if device != "auto":
            # The named platform is the default; the CPU stays for what is kept on the host.
            platforms = {"gpu": "cuda,cpu", "tpu": "tpu,cpu"}
            jax.config.update("jax_platforms", platforms.get(device, device))  # type: ignore[no-untyped-call]
        if deterministic:
            # Reductions on the CPU are split by threads; on a GPU some kernels race.
            _add_xla_flags("--xla_gpu_deterministic_ops=true", "--xla_cpu_multi_thread_eigen=false")

    @override
    def devices(self) -> list[str]:
        kinds = {jax.default_backend(), "cpu"}
        devices = [device for kind in kinds for device in jax.local_devices(backend=kind)]
        names = [f"{device.platform}:{device.id}" for device in devices]
        return sorted(names, key=lambda name: (name.startswith("cpu"), name))

    @override
    def memory_bytes(self) -> int:
        device = jax.local_devices()[0]
        if device.platform == "cpu":
            return usable_memory_bytes()
        return int((device.memory_stats() or {}).get("bytes_limit", 0))

    @override
    def inference(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> JaxInference:
        return JaxInference(function, tables, slots)

    @override
    def tables(self, specs: Mapping[str, tuple[int, ArraySpec]]) -> JaxTables:
        return JaxTables(specs)

    @override
    def uniform(self, seed: int, counter: Tensor, shape: tuple[int, ...]) -> Tensor:
        key = jax.random.fold_in(jax.random.key(seed), counter.reshape(()))
        return jax.random.uniform(key, shape)

    @override
    def trainer(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
        target_update_period: int = 0,
    ) -> JaxTrainer:
        return JaxTrainer(model, optimizer, loss, max_gradient_norm, target_update_period)

    @override
    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> TensorDict:
        # On a CPU the result may share the NumPy array's memory.
        return {name: jnp.asarray(array) for name, array in batch.items()}

    @override
    def to_host(self, value: Tensor) -> NDArray[Any]:
        return np.asarray(value)

    @override
    def profile(self, directory: str) -> AbstractContextManager[None]:
        profile: AbstractContextManager[None] = jax.profiler.trace(directory)
        return profile


class JaxInference(InferenceEngine):
    """A compiled inference step. The tables are donated at every run, hence updated in place.

    Only the thread that runs may hold them. Parameters are never donated.
    """

    def __init__(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> None:
        self._tables = {
            name: jnp.zeros((slots + 1, *spec.shape), spec.dtype) for name, spec in tables.items()
        }

        def run(
            tables: TensorDict, params: Params, slot: Tensor, inputs: TensorDict
        ) -> tuple[TensorDict, TensorDict]:
            rows = {name: table[slot] for name, table in tables.items()}
            outputs, rows = function(params, rows, inputs)
            return outputs, {name: table.at[slot].set(rows[name]) for name, table in tables.items()}

        self._run = jax.jit(run, donate_argnums=0)

    @override
    def run(
        self, params: Params, slots: NDArray[np.int32], inputs: Mapping[str, NDArray[Any]]
    ) -> TensorDict:
        outputs: TensorDict
        outputs, self._tables = self._run(self._tables, params, slots, dict(inputs))
        return outputs

    @override
    def read(self, name: str, slots: NDArray[np.int32]) -> NDArray[Any]:
        return np.asarray(self._tables[name][slots])


class JaxTables(DeviceTables):
    """Tables on the device. The arrays are donated at every run."""

    def __init__(self, specs: Mapping[str, tuple[int, ArraySpec]]) -> None:
        self.arrays: TensorDict = {
            name: jnp.zeros((rows, *spec.shape), spec.dtype) for name, (rows, spec) in specs.items()
        }

    @override
    def take(self, name: str, index: Tensor) -> Tensor:
        return self.arrays[name][index]

    @override
    def put(self, name: str, index: Tensor, rows: Tensor) -> None:
        raise TypeError(f"{name}: tables are changed by compiled functions only")

    @override
    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:

        def run(arrays: TensorDict, *given: Any) -> tuple[TensorDict, Any]:
            tables = _TracedTables(arrays)
            outputs = function(tables, *given)
            return tables.arrays, outputs

        compiled = jax.jit(run, donate_argnums=0)

        def call(*given: Any) -> Any:
            self.arrays, outputs = compiled(self.arrays, *given)
            return outputs

        return call

    @override
    def read(self) -> dict[str, NDArray[Any]]:
        return {name: np.array(array) for name, array in self.arrays.items()}

    @override
    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays = {name: jnp.array(arrays[name], copy=True) for name in self.arrays}


class _TracedTables(Tables):
    """Tables within a compiled function. XLA makes the new arrays of each change in place."""

    def __init__(self, arrays: TensorDict) -> None:
        self.arrays = dict(arrays)

    @override
    def take(self, name: str, index: Tensor) -> Tensor:
        return self.arrays[name][index]

    @override
    def put(self, name: str, index: Tensor, rows: Tensor) -> None:
        self.arrays[name] = self.arrays[name].at[index].set(rows)


class JaxTrainer(Trainer):
    """A compiled training step. The optimizer's arrays are donated, the parameters never."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
        target_update_period: int = 0,
    ) -> None:
        optimizer.build(model.trainable_variables)
        self._names, self._slot_names = named_variables(model, optimizer)
        self._kept = kept_in_checkpoints(self._slot_names)
        self._params: Params = [v.value for v in model.trainable_variables]
        # A copy, since donated arrays are gone after a step and the optimizer keeps these.
        self._slots = [jnp.array(v.value, copy=True) for v in optimizer.variables]

        def gradients(
            params: Params, target: Params, batch: TensorDict
        ) -> tuple[TensorDict, list[Tensor]]:
            (value, scalars), found = jax.value_and_grad(loss, has_aux=True)(params, target, batch)
            return {**scalars, "loss": value}, found

        def apply(
            slots: Params, params: Params, found: list[Tensor]
        ) -> tuple[Params, Params, Tensor]:
            found, norm = clip_by_global_norm(found, max_gradient_norm)
            params, slots = optimizer.stateless_apply(slots, found, params)
            return slots, params, norm

        def step(
            slots: Params, params: Params, target: Params, batch: TensorDict
        ) -> tuple[Params, Params, TensorDict]:
            outputs, found = gradients(params, target, batch)
            slots, params, norm = apply(slots, params, found)
            return slots, params, {**outputs, "gradient_norm": norm}

        self._update = step
        self._step = jax.jit(step, donate_argnums=0)

        def mix(params: Params, own: Tensor, weights: list[Tensor], others: list[Tensor]) -> Params:
            total = sum(weight * other for weight, other in zip(weights, others, strict=True))
            ends = np.cumsum([array.size for array in params])[:-1].tolist()
            parts = jnp.split(total, ends)
            return [
                own * array + part.reshape(array.shape)
                for array, part in zip(params, parts, strict=True)
            ]

        self._mix = jax.jit(mix)
        self._gradients, self._apply = jax.jit(gradients), jax.jit(apply, donate_argnums=0)
        self._target = TargetNetwork(self._names, self._params, target_update_period)

    @override
    def step(self, batch: TensorDict) -> TensorDict:
        scalars: TensorDict
        self._slots, self._params, scalars = self._step(
            self._slots, self._params, self._target.params, batch
        )
        self._target.on_update(self._params)
        return scalars

    @override
    def gradients(self, batch: TensorDict) -> tuple[TensorDict, list[Tensor]]:
        outputs, gradients = self._gradients(self._params, self._target.params, batch)
        return outputs, gradients

    @override
    def apply(self, gradients: list[Tensor]) -> Tensor:
        self._slots, self._params, norm = self._apply(
            self._slots, self._params, [jnp.asarray(g) for g in gradients]
        )
        self._target.on_update(self._params)
        return norm

    @override
    def fuse(
        self,
        tables: DeviceTables,
        sample: Callable[[Tables], TensorDict],
        set_priorities: Callable[[Tables, TensorDict, TensorDict], None],
    ) -> Callable[[], TensorDict]:

        def step(
            arrays: TensorDict, slots: Params, params: Params, target: Params
        ) -> tuple[TensorDict, Params, Params, TensorDict]:
            traced = _TracedTables(arrays)
            batch = sample(traced)
            slots, params, outputs = self._update(slots, params, target, batch)
            set_priorities(traced, batch, outputs)
            return traced.arrays, slots, params, outputs

        compiled = jax.jit(step, donate_argnums=(0, 1))
        assert isinstance(tables, JaxTables)

        def run() -> TensorDict:
            outputs: TensorDict
            tables.arrays, self._slots, self._params, outputs = compiled(
                tables.arrays, self._slots, self._params, self._target.params
            )
            self._target.on_update(self._params)
            return outputs

        return run

    @override
    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        return layout_of(self._names, self._params)

    @override
    def set_params(self, arrays: list[NDArray[np.float32]]) -> None:
        self._params = [jnp.asarray(array) for array in arrays]

    @override
    def mix(self, own: float, others: Sequence[tuple[float, NDArray[np.float32]]]) -> None:
        self._params = self._mix(
            self._params,
            np.float32(own),
            [np.float32(weight) for weight, _ in others],
            [other for _, other in others],
        )

    @override
    def params(self) -> Params:
        return self._params

    @override
    def state(self) -> dict[str, NDArray[Any]]:
        arrays = dict(zip(self._names, self._params, strict=True))
        arrays |= {self._slot_names[i]: self._slots[i] for i in self._kept}
        state = {name: np.array(array) for name, array in arrays.items()}
        return {**state, **self._target.state()}

    @override
    def load(self, state: Mapping[str, NDArray[Any]], optimizer: bool = True) -> None:
        params = checked(self._names, self._params, state, "model/")
        if optimizer:
            names = [self._slot_names[i] for i in self._kept]
            slots = checked(names, [self._slots[i] for i in self._kept], state, "optimizer/")
            for i, array in zip(self._kept, slots, strict=True):
                self._slots[i] = jnp.array(array, copy=True)
        self._params = [jnp.array(array, copy=True) for array in params]
        self._target.load(state if optimizer else {}, self._params, jnp.array)


def _add_xla_flags(*flags: str) -> None:
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([given, *flags]).strip()
