"""Check of the machine: where another precision than float32 is worth it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from seedbed.config import Experiment
from seedbed.runtime.accelerators import BFLOAT16, bfloat16_instructions
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.findings import Finding

# Compute capability of the first GPUs with bfloat16 and TensorFloat-32 (A100).
_AMPERE = 8.0
_TIMEOUT_S = 20.0


def precision(
    experiment: Experiment | None,
    cpuinfo: Path = Path("/proc/cpuinfo"),
    dev: Path = Path("/dev"),
    capability: float | None = None,
) -> Iterator[Finding]:
    """Name what multiplies bfloat16 here, and compare it with the experiment's precision.

    Args:
        experiment: the experiment, if any.
        cpuinfo: what Linux says of the CPU.
        dev: folder of the device files.
        capability: compute capability of the GPU, 0 without one; None asks the driver.
    """
    capability = _compute_capability() if capability is None else capability
    has = []
    if any(dev.glob("accel[0-9]*")) or any(dev.glob("vfio/[0-9]*")):
        has.append("a TPU")
    if capability >= _AMPERE:
        has.append(f"a GPU of compute capability {capability:g}")
    accelerated = bool(has)
    if instructions := bfloat16_instructions(cpuinfo):
        has.append(f"with TensorFlow a CPU with {' and '.join(instructions)}")
    fact = f"learner.precision bfloat16 gains here: {', '.join(has)}"
    if not has:
        fact = (
            "learner.precision bfloat16 gains nothing here: no TPU, no GPU of compute "
            f"capability {_AMPERE:g} or more, no CPU with {' or '.join(BFLOAT16)}"
        )
    learner = experiment.learner if experiment is not None else None
    asked = learner.precision if learner is not None else "float32"
    on_cpu = not accelerated or (learner is not None and learner.device == "cpu")
    if (
        learner is not None
        and asked == "tensorfloat32"
        and (learner.device == "cpu" or not capability)
    ):
        yield Finding(
            "fail",
            "learner.precision is tensorfloat32, a format of NVIDIA GPUs, and there is none",
            "set learner.precision to float32 or bfloat16",
            ExitCode.BACKEND,
        )
    elif asked == "bfloat16" and learner is not None and on_cpu and learner.backend == "jax":
        message = "learner.precision is bfloat16, which gains nothing with JAX on a CPU"
        yield Finding("warn", message, "set learner.precision to float32, or use TensorFlow")
    elif asked == "bfloat16" and not has:
        yield Finding("warn", fact, "set learner.precision to float32")
    else:
        yield Finding("ok", fact)


def _compute_capability() -> float:
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0.0
    command = [program, "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, env={**os.environ}, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
        return float(done.stdout.split()[0])
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError):
        return 0.0
