"""What this machine has to compute with, found without a backend.

An accelerator that this installation cannot use, and instructions of the CPU for bfloat16.
"""

from importlib.metadata import distributions
from pathlib import Path

from seedbed.runtime.install import how_to_install

# Device nodes and files of a driver. A container without the device has none of them.
_NVIDIA = ("dev/nvidia[0-9]*", "proc/driver/nvidia/version")
_TPU = ("dev/accel[0-9]*",)
# Libraries of CUDA that are no Python package.
_SYSTEM_CUDA = ("usr/local/cuda*/lib64/libcudart.so*",)
# Linux's names of a CPU's instructions that multiply bfloat16.
BFLOAT16 = ("amx_bf16", "avx512_bf16")
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


def slow_bfloat16(backend: str, device: str, root: Path = Path("/")) -> str | None:
    """Say that a network in bfloat16 is no faster than in float32, where it computes on the CPU.

    Args:
        backend: `tensorflow` or `jax`.
        device: `learner.device`.
        root: Root of the file system.

    Returns:
        A sentence; None where bfloat16 is faster, or an accelerator computes.
    """
    accelerated = _has(root, _TPU + _NVIDIA) and unusable_accelerator(backend, root) is None
    if accelerated and device != "cpu":
        return None
    if not bfloat16_instructions(root / "proc/cpuinfo"):
        return f"bfloat16 is slower than float32 on a CPU without {' and '.join(BFLOAT16)}"
    return "bfloat16 gains nothing with JAX on a CPU" if backend == "jax" else None


def bfloat16_instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Return the instructions of the CPU that multiply bfloat16.

    Args:
        cpuinfo: What Linux says of the CPU.
    """
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return []
    flags = next((line.split() for line in lines if line.startswith(("flags", "Features"))), [])
    return [name for name in BFLOAT16 if name in flags]


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
