"""JAX: the way to TPUs. Only this file imports JAX, and nothing here imports TensorFlow."""

import os
from collections.abc import Callable, Mapping
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
from typing_extensions import override

from seedbed.backends.protocol import (
    Backend,
    DeviceTables,
    LossFunction,
    Tables,
    TensorDict,
    Trainer,
)
from seedbed.types import Params, Tensor


class JaxTables(DeviceTables):
    """Tables on the device. The arrays are donated at every run."""

    def __init__(self, specs: Mapping[str, tuple[int, ArraySpec]]) -> None:
        self.arrays: TensorDict = {
            name: jnp.zeros((rows, *spec.shape), spec.dtype) for name, (rows, spec) in specs.items()
        }

    @override
    def compile(
        self, function: Callable[..., Any], donated: tuple[int, ...] = ()
    ) -> Callable[..., Any]:

        def run(arrays: TensorDict, *given: Any) -> tuple[TensorDict, Any]:
            tables = _TracedTables(arrays)
            outputs = function(tables, *given)
            return tables.arrays, outputs

        compiled = jax.jit(run, donate_argnums=(0, *(i + 1 for i in donated)))

        def call(*given: Any) -> Any:
            self.arrays, outputs = compiled(self.arrays, *given)
            return outputs

        return call

    @override
    def read(self) -> dict[str, NDArray[Any]]:
        return {name: np.array(array) for name, array in self.arrays.items()}


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

    _to_device = staticmethod(jnp.asarray)

    @override
    def _read_variables(self) -> None:
        self._params = [v.value for v in self._model.trainable_variables]
        # A copy, since donated arrays are gone after a step and the optimizer keeps these.
        self._slots = [jnp.array(v.value, copy=True) for v in self._optimizer.variables]

    @override
    def _compile(
        self, function: Callable[..., Any], donated: tuple[int, ...] = ()
    ) -> Callable[..., Any]:
        return jax.jit(function, donate_argnums=donated)

    @override
    def _differentiate(
        self, loss: LossFunction, params: Params, target: Params, batch: TensorDict
    ) -> tuple[Tensor, TensorDict, list[Tensor]]:
        gradients = jax.value_and_grad(loss, has_aux=True)
        (value, scalars), found = gradients(params, target, batch)
        return value, scalars, found

    @override
    def _optimize(
        self, slots: list[Tensor], params: Params, gradients: list[Tensor], finite: Tensor
    ) -> tuple[list[Tensor], Params]:
        new_params, new_slots = self._optimizer.stateless_apply(slots, gradients, params)
        # XLA fuses the choice into the optimizer's own pass over the arrays.
        chosen = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old), (new_slots, new_params), (slots, params)
        )
        return chosen[0], chosen[1]

    @override
    def _kept_arrays(self) -> list[Tensor]:
        return [self._slots[i] for i in self._kept]

    @override
    def _set_kept_arrays(self, arrays: list[NDArray[Any]]) -> None:
        for i, array in zip(self._kept, arrays, strict=True):
            self._slots[i] = jnp.array(array, copy=True)


class JaxBackend(Backend):
    """The backend of JAX."""

    name = "jax"
    tables = JaxTables
    trainer = JaxTrainer

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
    def uniform(self, seed: int, counter: Tensor, shape: tuple[int, ...]) -> Tensor:
        key = jax.random.fold_in(jax.random.key(seed), counter.reshape(()))
        return jax.random.uniform(key, shape)

    @override
    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> TensorDict:
        # On a CPU the result may share the NumPy array's memory.
        return {name: jnp.asarray(array) for name, array in batch.items()}

    @override
    def profile(self, directory: str) -> AbstractContextManager[None]:
        profile: AbstractContextManager[None] = jax.profiler.trace(directory)
        return profile


def _add_xla_flags(*flags: str) -> None:
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([given, *flags]).strip()
