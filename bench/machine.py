"""What figures depend on: the machine, the versions, and the speed that bounds them."""

import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.runtime.limits import usable_cpus, usable_memory_bytes

_PACKAGES = ("ale-py", "grpcio", "jax", "keras", "numpy", "protobuf", "tensorflow")


def actor_cores() -> int:
    """Return how many cores step environments beside a learner, whose threads take 2."""
    return max(1, int(usable_cpus()) - 2)


def machine_info(gemm_size: int) -> dict[str, Any]:
    """Cores, processor, versions, the load before the benchmark, and `gemm_gflops`."""
    return {
        "cpu": cpu_model(),
        "cores": usable_cpus(),
        "memory_gib": round(usable_memory_bytes() / 2**30, 1),
        "gemm_gflops": gemm_gflops(gemm_size),
        "load_average_1m": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def gemm_gflops(size: int, tries: int = 8) -> float:
    """The most GFLOP/s at which NumPy multiplies two float32 matrices [size, size], all cores.

    An upper bound of what a network can do on these cores.
    """
    a = np.random.default_rng(0).random((size, size), np.float32)
    best = 0.0
    for _ in range(tries):
        started = time.perf_counter()
        a @ a
        best = max(best, 2 * size**3 / (time.perf_counter() - started) / 1e9)
    return best


def revision() -> dict[str, Any]:
    """The commit that was measured, and whether files differed from it."""
    return {"commit": _git("rev-parse", "HEAD"), "changed": bool(_git("status", "--porcelain"))}


def command() -> str:
    """What was typed."""
    return " ".join(["seedbed", *sys.argv[1:]])


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(
            ["git", "-c", "safe.directory=*", *arguments],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return ""  # an installed package on a machine without git
    return answer.stdout.strip()


def cpu_model() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
