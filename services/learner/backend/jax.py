"""JAX: the way to TPUs. This file alone imports it, and nothing here imports TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.common.spec import ArraySpec

# XLA's own log, before it is loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax
import jax.numpy as jnp
import keras

from services.learner.backend.clipping import clip_by_global_norm
from services.learner.backend.protocol import (
    InferenceFunction,
    LossFunction,
    Params,
    Rows,
    Tensor,
)
from services.learner.backend.state import checked, kept_in_checkpoints, named_variables


class JaxBackend:
    """See `backend.protocol.Backend`."""

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

    def devices(self) -> list[str]:
        """See the protocol."""
        kinds = {jax.default_backend(), "cpu"}
        devices = [device for kind in kinds for device in jax.local_devices(backend=kind)]
        names = [f"{device.platform}:{device.id}" for device in devices]
        return sorted(names, key=lambda name: (name.startswith("cpu"), name))

    def scan(
        self,
        function: Callable[[Any, Any], tuple[Any, Any]],
        initial: Any,
        inputs: Any,
        reverse: bool = False,
    ) -> tuple[Any, Any]:
        """See the protocol."""
        carry, stacked = jax.lax.scan(function, initial, inputs, reverse=reverse)
        return carry, stacked

    def inference(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> JaxInference:
        """See the protocol."""
        return JaxInference(function, tables, slots)

    def trainer(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
    ) -> JaxTrainer:
        """See the protocol."""
        return JaxTrainer(model, optimizer, loss, max_gradient_norm)

    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> Rows:
        """See the protocol. On a CPU the result may share the NumPy array's memory."""
        return {name: jnp.asarray(array) for name, array in batch.items()}

    def to_host(self, value: Tensor) -> NDArray[Any]:
        """See the protocol."""
        return np.asarray(value)

    def profile(self, directory: str) -> AbstractContextManager[None]:
        """See the protocol."""
        profile: AbstractContextManager[None] = jax.profiler.trace(directory)
        return profile


class JaxInference:
    """See `backend.protocol.InferenceEngine`. The tables are donated at every run, so updated in
    place; only the thread that runs may hold them. Parameters are never donated.
    """

    def __init__(
        self, function: InferenceFunction, tables: Mapping[str, ArraySpec], slots: int
    ) -> None:
        self._tables = {
            name: jnp.zeros((slots + 1, *spec.shape), spec.dtype) for name, spec in tables.items()
        }

        def run(tables: Rows, params: Params, slot: Tensor, inputs: Rows) -> tuple[Rows, Rows]:
            rows = {name: table[slot] for name, table in tables.items()}
            outputs, rows = function(params, rows, inputs)
            return outputs, {name: table.at[slot].set(rows[name]) for name, table in tables.items()}

        self._run = jax.jit(run, donate_argnums=0)

    def run(
        self, params: Params, slots: NDArray[np.int32], inputs: Mapping[str, NDArray[Any]]
    ) -> Rows:
        """See the protocol."""
        outputs: Rows
        outputs, self._tables = self._run(self._tables, params, slots, dict(inputs))
        return outputs

    def read(self, name: str, slots: NDArray[np.int32]) -> NDArray[Any]:
        """See the protocol."""
        return np.asarray(self._tables[name][slots])


class JaxTrainer:
    """See `backend.protocol.Trainer`. The optimizer's arrays are donated, the parameters never."""

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        loss: LossFunction,
        max_gradient_norm: float,
    ) -> None:
        optimizer.build(model.trainable_variables)
        self._names, self._slot_names = named_variables(model, optimizer)
        self._kept = kept_in_checkpoints(self._slot_names)
        self._params: Params = [v.value for v in model.trainable_variables]
        # A copy, since donated arrays are gone after a step and the optimizer keeps these.
        self._slots = [jnp.array(v.value, copy=True) for v in optimizer.variables]

        def step(
            slots: Params, params: Params, batch: Rows
        ) -> tuple[Params, Params, dict[str, Tensor]]:
            (value, scalars), gradients = jax.value_and_grad(loss, has_aux=True)(params, batch)
            gradients, norm = clip_by_global_norm(gradients, max_gradient_norm)
            params, slots = optimizer.stateless_apply(slots, gradients, params)
            return slots, params, {**scalars, "loss": value, "gradient_norm": norm}

        self._step = jax.jit(step, donate_argnums=0)

    def step(self, batch: Rows) -> dict[str, Tensor]:
        """See the protocol."""
        scalars: dict[str, Tensor]
        self._slots, self._params, scalars = self._step(self._slots, self._params, batch)
        return scalars

    def params(self) -> Params:
        """See the protocol."""
        return self._params

    def state(self) -> dict[str, NDArray[Any]]:
        """See the protocol."""
        arrays = dict(zip(self._names, self._params, strict=True))
        arrays |= {self._slot_names[i]: self._slots[i] for i in self._kept}
        return {name: np.array(array) for name, array in arrays.items()}

    def load(self, state: Mapping[str, NDArray[Any]], optimizer: bool = True) -> None:
        """See the protocol."""
        params = checked(self._names, self._params, state, "model/")
        if optimizer:
            names = [self._slot_names[i] for i in self._kept]
            slots = checked(names, [self._slots[i] for i in self._kept], state, "optimizer/")
            for i, array in zip(self._kept, slots, strict=True):
                self._slots[i] = jnp.array(array, copy=True)
        self._params = [jnp.array(array, copy=True) for array in params]


def _add_xla_flags(*flags: str) -> None:
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([given, *flags]).strip()
