"""Child: R2D2 with as many sequences in the memory of the device as fit, filled with noise."""

from typing import Any

import numpy as np

from bench.figures import series
from bench.model_parts import used_backend
from bench.null_learner import pong_spec
from bench.replay.storages import timed
from seedbed.config import load_experiment
from seedbed.replay.sequence import SequenceSpec
from seedbed.runtime.allocator import keep_large_blocks

AT_A_TIME = 32  # sequences of a chunk, and of fewer where the replay has not many chunks
CHUNKS = 8
# What the replay may take of the device's memory: the model, a batch and its gradients want room.
OF_A_DEVICE, OF_A_HOST = 0.9, 0.4


class ReplayCapacity:
    """R2D2's learner, whose replay is on the device.

    Args:
        experiment: Of R2D2. Its capacity is only that of the attempt that reads the sizes.
    """

    def __init__(self, experiment: str) -> None:
        keep_large_blocks()
        self._path = experiment
        config = load_experiment(experiment)
        self._backend = used_backend(config)
        self._sequence = self._build(2 * AT_A_TIME).source.buffer.spec

    def _build(self, capacity: int) -> Any:
        from seedbed.services.learner.components_factory import build_components

        sizes = [f"learner.replay.capacity={capacity}", "learner.replay.min_size=1"]
        config = load_experiment(self._path, sizes)
        return build_components(config, pong_spec(config), self._backend)

    def measure(self, sequences: int, seconds: float, runs: int) -> dict[str, Any]:
        """Fill the replay and train from it.

        Args:
            sequences: That are wanted.
            seconds: Of a measurement of the training step.
            runs: Measurements.
        """
        from bench.replay.training import fill

        spec, device = self._sequence, self._backend.devices()[0]
        one = _bytes_a_sequence(spec, sequences)
        memory = self._backend.memory_bytes()
        part = OF_A_HOST if device.startswith("cpu") else OF_A_DEVICE
        capacity = min(sequences, int(part * memory / one)) if memory else sequences
        built, refused = None, list[int]()
        while built is None:
            try:
                built = self._build(capacity)
                fill(built.source.buffer, capacity, min(AT_A_TIME, capacity // CHUNKS))
                built.source.buffer.flush()
                _wait(built.source.step())
            except Exception as error:  # of the backend, whichever that is
                if "RESOURCE_EXHAUSTED" not in str(error) or capacity < 4 * CHUNKS:
                    raise
                refused.append(capacity)
                capacity, built = int(0.9 * capacity), None
        rates = [timed(lambda: _wait(built.source.step()), seconds) for _ in range(runs)]
        batch = load_experiment(self._path).learner.batch_size
        return {
            "device": device,
            "wanted": sequences,
            "sequences": capacity,
            "did_not_fit": refused,
            "bytes_a_sequence": one,
            "gib": capacity * one / 2**30,
            "memory_gib": memory / 2**30,
            "step_ms": series([1e3 / rate for rate in rates]),
            "sequences_per_s": series([batch * rate for rate in rates]),
            "batch_size": batch,
            "trained_steps_per_s": series([batch * spec.steps * rate for rate in rates]),
        }


def _bytes_a_sequence(spec: SequenceSpec, sequences: int) -> float:
    from seedbed.replay.client import device_tables

    return device_tables.device_bytes(spec, sequences) / sequences


def _wait(outputs: dict[str, Any]) -> None:
    for value in outputs.values():
        np.asarray(value)
