"""An accelerator of this machine that this installation cannot use, found without a backend."""

from importlib.metadata import distributions
from pathlib import Path

from seedbed.runtime.install import how_to_install

# Device nodes and files of a driver. A container without the device has none of them.
_NVIDIA = ("dev/nvidia[0-9]*", "proc/driver/nvidia/version")
_TPU = ("dev/accel[0-9]*",)
# Libraries of CUDA that are no Python package.
_SYSTEM_CUDA = ("usr/local/cuda*/lib64/libcudart.so*",)
_NAMES = {"tensorflow": "TensorFlow", "jax": "JAX"}


def unusable_accelerator(backend: str, root: Path = Path("/")) -> str | None:
    """Say which accelerator is here and cannot be used, and the command that mends it.

    Args:
        backend: `tensorflow` or `jax`.
        root: Root of the file system.

    Returns:
        A sentence; None where there is no accelerator, or nothing is known to be missing.
    """
    if _has(root, _TPU) and not (backend == "jax" and _installed("libtpu")):
        return _sentence("a TPU", backend, "tpu", "jax-tpu")
    needed = "nvidia-cudnn" if backend == "tensorflow" else "jax-cuda"
    if _has(root, _NVIDIA) and not (_installed(needed) or _has(root, _SYSTEM_CUDA)):
        return _sentence("an NVIDIA GPU", backend, "gpu", f"{backend}-cuda")
    return None


def _sentence(accelerator: str, backend: str, device: str, extra: str) -> str:
    # `make run DEVICE=gpu` installs TensorFlow, `DEVICE=tpu` JAX.
    make = "" if extra == "jax-cuda" else f"`make run DEVICE={device}`, or "
    other = " with learner.backend jax" if extra == "jax-tpu" and backend != "jax" else ""
    return (
        f"this machine has {accelerator}, which {_NAMES[backend]} as it is installed here cannot "
        f"use: {make}{how_to_install(extra)}{other}"
    )


def _has(root: Path, patterns: tuple[str, ...]) -> bool:
    return any(any(root.glob(pattern)) for pattern in patterns)


def _installed(prefix: str) -> bool:
    return any((one.name or "").lower().startswith(prefix) for one in distributions())
