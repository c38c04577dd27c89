"""JAX: the way to TPUs. Only `jax*.py` import JAX, and nothing here imports TensorFlow."""

# ruff: noqa: E402  JAX is imported after its environment is set.

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.allocator import keep_large_blocks
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.files import delete_oldest
from seedbed.runtime.limits import usable_memory_bytes
from seedbed.runtime.text import counted
from seedbed.spec import BATCH_FIRST, ArraySpec

# Both before the import: XLA's own log, and its memory.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
keep_large_blocks()

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from typing_extensions import override

from seedbed.backends.coordination import HostPlace
from seedbed.backends.jax_convolution import convolve
from seedbed.backends.jax_coordination import JaxCoordination
from seedbed.backends.protocol import Backend
from seedbed.backends.roles import Split, roles_of
from seedbed.backends.tables import DeviceTables, Tables, TensorDict
from seedbed.backends.trainer import LossFunction, Trainer
from seedbed.types import Params, Tensor

# Functions that JAX has no types for.
_spec: Any = PartitionSpec
_from_local: Any = jax.make_array_from_process_local_data

# Training devices of all hosts of the learner; None where one device acts and trains.
_mesh: Mesh | None = None
# Devices of this host that act; empty where one device acts and trains.
_acting: tuple[jax.Device, ...] = ()


def _replicated(array: Any) -> Tensor:
    """Return an array as every training device has it; all hosts must bring the same."""
    if _mesh is None:
        return jnp.asarray(array)
    host = np.asarray(array)
    everywhere = NamedSharding(_mesh, _spec())
    return _from_local(everywhere, host, host.shape)


def _divided(name: str, array: NDArray[Any]) -> Tensor:
    """Return a batch's array of which each training device has a part along the batch axis."""
    assert _mesh is not None
    axes = ("training",) if name in BATCH_FIRST else (None, "training")
    return _from_local(NamedSharding(_mesh, _spec(*axes)), np.ascontiguousarray(array))


@cache
def _sum_of_hosts(mesh: Mesh) -> Any:
    """Return the compiled sum of what each training device brings.

    A sum, because on a CPU no other collective is right: all but the first host bring zeros.
    """
    everywhere = NamedSharding(mesh, _spec())
    return jax.jit(lambda parts: parts.sum(axis=0, dtype=parts.dtype), out_shardings=everywhere)


# Compiled functions that a start finds, in bytes. A run makes some tens of MiB.
_MOST_COMPILED_BYTES = 2**30


class JaxTables(DeviceTables):
    """Tables on the device. The arrays are donated at every run."""

    def __init__(
        self, specs: Mapping[str, tuple[int, ArraySpec]], acting: int | None = None
    ) -> None:
        devices = _mesh.local_devices[:1] if _mesh is not None else []
        if acting is not None and _acting:
            devices = [_acting[acting]]
        self.arrays: TensorDict = {
            name: jnp.zeros((rows, *spec.shape), spec.dtype, device=next(iter(devices), None))
            for name, (rows, spec) in specs.items()
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

    _to_device = staticmethod(_replicated)

    @override
    def _read_variables(self) -> None:
        self._params = [v.value for v in self._model.trainable_variables]
        if _mesh is not None:
            self._params = [_replicated(array) for array in self._params]
            self._slots = [_replicated(v.value) for v in self._optimizer.variables]
            return
        # A copy, since donated arrays are gone after a step and the optimizer keeps these.
        self._slots = [jnp.array(v.value, copy=True) for v in self._optimizer.variables]

    @override
    def _compile(
        self, function: Callable[..., Any], donated: tuple[int, ...] = ()
    ) -> Callable[..., Any]:
        if _mesh is None:
            return jax.jit(function, donate_argnums=donated)
        everywhere = NamedSharding(_mesh, _spec())
        return jax.jit(function, donate_argnums=donated, out_shardings=everywhere)

    @override
    def _compile_ahead(self, step: Callable[..., Any], batch: Mapping[str, ArraySpec]) -> None:
        if _mesh is not None:
            return  # the parts of the batch are divided
        lowered: Any = step
        array: Any = jax.ShapeDtypeStruct
        like = {name: array(spec.shape, spec.dtype) for name, spec in batch.items()}
        # The first call finds it in the persistent cache.
        lowered.lower(self._slots, self._params, self._target, like).compile()

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
    def _may_pack(self, array: Any) -> bool:
        return (
            isinstance(array, jax.Array)
            and array.dtype == jnp.float32
            and array.is_fully_addressable
            and next(iter(array.devices())).platform != "cpu"
        )

    @override
    def _pack(self, arrays: list[Tensor]) -> Tensor:
        return _packed(arrays)

    @override
    def _kept_arrays(self) -> list[Tensor]:
        return [self._slots[i] for i in self._kept]

    @override
    def _set_kept_arrays(self, arrays: list[NDArray[Any]]) -> None:
        for i, array in zip(self._kept, arrays, strict=True):
            self._slots[i] = jnp.array(_replicated(array), copy=True)

    @override
    def step(self, batch: TensorDict) -> TensorDict:
        outputs = super().step(batch)
        if _mesh is not None and "priority" in outputs:
            # Of the sequences that this host has brought.
            size = len(outputs["priority"]) // jax.process_count()
            start = size * jax.process_index()
            outputs["priority"] = outputs["priority"].addressable_data(0)[start : start + size]
        return outputs

    @override
    def params(self) -> Params:
        if _mesh is None:
            return self._params
        return [array.addressable_data(0) for array in self._params]


@jax.jit
def _packed(arrays: list[Tensor]) -> Tensor:
    return jnp.concatenate([array.ravel() for array in arrays])


class JaxBackend(Backend):
    """The backend of JAX."""

    name = "jax"
    tables = JaxTables
    trainer = JaxTrainer

    def __init__(
        self,
        deterministic: bool = False,
        device: str = "auto",
        place: HostPlace | None = None,
        precision: str = "float32",
        split: Split | None = None,
    ) -> None:
        # The default is TensorFloat-32 on GPUs and bfloat16 on TPUs: acting and training, whose
        # batches have other shapes, agree less. Products of bfloat16 arrays stay what they are.
        products = "tensorfloat32" if precision == "tensorfloat32" else "float32"
        jax.config.update("jax_default_matmul_precision", products)  # type: ignore[no-untyped-call]
        if device != "auto":
            # The named platform is the default; the CPU stays for what is kept on the host.
            platforms = {"gpu": "cuda,cpu", "tpu": "tpu,cpu"}
            jax.config.update("jax_platforms", platforms.get(device, device))  # type: ignore[no-untyped-call]
        if device == "cpu" and split is not None and split.inference:
            # CPU devices are threads, so there are as many as are asked for.
            jax.config.update("jax_num_cpu_devices", sum(split))  # type: ignore[no-untyped-call]
        if place is not None:
            self.coordination = JaxCoordination(place)
        if place is not None or (split is not None and split.inference):
            self.divide(split or Split(0, len(jax.local_devices())))
        if deterministic:
            # Reductions on the CPU are split by threads; on a GPU some kernels race.
            _add_xla_flags("--xla_gpu_deterministic_ops=true", "--xla_cpu_multi_thread_eigen=false")

    @override
    def divide(self, split: Split) -> None:
        global _mesh, _acting
        local = jax.local_devices()
        if len(local) < sum(split):
            raise SeedbedError(
                ExitCode.BACKEND,
                f"learner.devices asks for {counted(split.inference, 'device')} to act and "
                f"{split.training} to train, and this host has {len(local)} "
                f"({', '.join(str(one) for one in local)}): ask for at most {len(local)} in all",
            )
        roles = roles_of(local, split)
        numbers = [local.index(one) for one in roles.training]
        hosts: dict[int, list[jax.Device]] = {}
        for one in jax.devices():
            hosts.setdefault(one.process_index, []).append(one)
        training = [devices[i] for _, devices in sorted(hosts.items()) for i in numbers]
        _mesh, _acting = Mesh(np.array(training), ("training",)), roles.inference
        self.split = split

    @override
    def num_devices(self) -> int:
        return len(jax.local_devices())

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
    def convolve(self, image: Tensor, kernel: Tensor, stride: int) -> Tensor:
        return convolve(image, kernel, stride)

    @override
    def transpose(self, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        return jnp.transpose(x, axes)

    @override
    def to_device(self, batch: Mapping[str, NDArray[Any]]) -> TensorDict:
        if _mesh is not None:
            return {name: _divided(name, array) for name, array in batch.items()}
        # On a CPU the result may share the NumPy array's memory.
        return {name: jnp.asarray(array) for name, array in batch.items()}

    @override
    def from_first_host(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        assert _mesh is not None
        assert self.coordination is not None
        # All as bytes, in one collective.
        size = sum(array.nbytes for array in arrays.values())
        brought = np.zeros((len(_mesh.local_devices), size), np.uint8)
        if self.coordination.host == 0:
            flat = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays.values()]
            np.concatenate(flat, out=brought[0])
        buffer = np.asarray(_sum_of_hosts(_mesh)(_divided("state", brought)))
        received, start = {}, 0
        for name, array in arrays.items():
            part = buffer[start : start + array.nbytes]
            received[name] = part.view(array.dtype).reshape(array.shape).copy()
            start += array.nbytes
        return received

    @override
    def to_acting(self, params: Params) -> list[Params]:
        if not _acting:
            return [params]
        copies = [jax.device_put(params, device) for device in _acting]
        # Parameters that are still on their way would keep every inference batch waiting.
        jax.block_until_ready(copies)  # type: ignore[no-untyped-call]
        return copies

    @override
    def begin_copies(self, arrays: Sequence[Tensor]) -> None:
        for array in arrays:
            array.copy_to_host_async()

    @override
    def is_computed(self, array: Tensor) -> bool:
        return bool(array.is_ready())

    @override
    def keep_compiled(self, folder: Path) -> None:
        # JAX's own bound needs a package that is not among its requirements.
        delete_oldest(folder, _MOST_COMPILED_BYTES)
        jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
        # The many short compiles are as much of a start as the few long ones.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # type: ignore[no-untyped-call]
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)  # type: ignore[no-untyped-call]

    @override
    def profile(self, directory: str) -> AbstractContextManager[None]:
        profile: AbstractContextManager[None] = jax.profiler.trace(directory)
        return profile


def _add_xla_flags(*flags: str) -> None:
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = " ".join([given, *flags]).strip()
