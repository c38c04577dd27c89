"""Child: what the backend says of its devices."""

import shutil
import subprocess
from typing import Any

from bench.model_parts import used_backend
from seedbed.config import load_experiment

_QUERY = "name,memory.total,driver_version,pcie.link.gen.current,pcie.link.width.current"


class Device:
    """The devices of this process."""

    def __init__(self, experiment: str) -> None:
        self._backend = used_backend(load_experiment(experiment))

    def facts(self) -> dict[str, Any]:
        """Return names, kinds and memory of the devices."""
        kinds: list[str] = []
        if self._backend.name == "jax":
            import jax

            kinds = [device.device_kind for device in jax.local_devices()]
        else:
            import tensorflow as tf

            for device in tf.config.list_physical_devices("GPU"):
                details = tf.config.experimental.get_device_details(device)
                kinds.append(details.get("device_name", "GPU"))
        return {
            "devices": self._backend.devices(),
            "kinds": kinds or ["cpu"],
            "memory_gib": self._backend.memory_bytes() / 2**30,
        }


def nvidia() -> list[str]:
    """Return a line for each NVIDIA GPU: name, memory, driver, bus; empty without any."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    arguments = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
