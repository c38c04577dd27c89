"""Child: what the backend says of its devices."""

from typing import Any

from bench.model_parts import used_backend
from seedbed.config import load_experiment


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
