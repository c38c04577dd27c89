"""Child: the training step of "Deep In-GPU Experience Replay" (section 5), with two storages.

Its dueling DQN on states of 27 floats, a million transitions, uniform sampling. Three ways to the
same update: drawn in RAM and copied before every step, as the paper's baseline; drawn and copied
ahead by a thread, as ours; and fused, on the device. A process of its own, since it chooses Keras's
backend.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from bench.figures import series, series_of
from bench.replay.content import chunk_of
from bench.replay.storages import timed
from seedbed import backends
from seedbed.backends.protocol import Backend
from seedbed.config import parse_experiment
from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.runtime.allocator import keep_large_blocks
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.training.replay_source import training_batch
from seedbed.spec import ArraySpec, EnvironmentSpec

STATE = ArraySpec((27,), "float32")  # with the next one, action, reward and end 57 floats
ACTIONS = 30
# The paper's Table 1: batch size to percent speed-up of its fused step.
PAPER_PERCENT = {16: 30.54, 32: 54.87, 64: 67.08, 128: 114.41, 256: 114.35}
# Its section 5: microseconds a transition, in RAM, and on the GPU 2,000 at a time.
PAPER_INSERT_US = {"ram": 1.4, "gpu": 37.5}
AHEAD = 2  # batches that the thread has drawn


def built_for(backend: Backend, replay: str, batch_size: int, sequences: int) -> LearnerComponents:
    """Build the paper's agent with an empty replay."""
    experiment = parse_experiment(
        f"""
        name: bench
        environment: {{id: "bench:melee"}}
        agent: dqn
        actor: {{envs_per_group: 1, groups: 1}}
        learner:
          backend: {backend.name}
          network: mlp
          network_options: {{units: [128], activation: relu}}
          frame_stack: 1
          unroll_length: 1
          batch_size: {batch_size}
          replay:
            storage: {replay}
            capacity: {sequences}
            min_size: 1
            transfer_steps: 2000
            priority_exponent: 0
            importance_sampling_exponent: 0
          inference: {{slots: 16, max_batch_envs: 16}}
        """
    )
    from seedbed.services.learner.components_factory import build_components

    return build_components(experiment, EnvironmentSpec("bench:melee", STATE, ACTIONS, 1), backend)


def fill(replay: Any, transitions: int, at_a_time: int) -> None:
    """Insert noise until the replay is full."""
    chunk = chunk_of(replay.spec, at_a_time, 0, np.random.default_rng(0))
    for number in range(transitions // at_a_time + 1):
        replay.add(replace(chunk, chunk_index=number))


class Training:
    """The training step, and the insertion of transitions.

    Args:
        backend: Name of Keras's backend.
        transitions: Capacity of the replay, which is full.
        runs: Turns.
        window_s: Time of each measurement; of an insertion half of it.
    """

    def __init__(self, backend: str, transitions: int, runs: int, window_s: float) -> None:
        keep_large_blocks()
        self._backend = backends.use(backend)
        self._transitions, self._runs, self._window_s = transitions, runs, window_s

    def steps(self, batch_size: int) -> dict[str, Any]:
        """Measure the milliseconds of a training step in each way, in turn."""
        backend, transitions = self._backend, self._transitions
        host = built_for(backend, "host", batch_size, transitions)
        device = built_for(backend, "device", batch_size, transitions)
        fed: Any = host.source
        fused: Any = device.source
        for source in (fed, fused):
            fill(source.buffer, transitions, 2000)
        random = np.random.default_rng(1)

        def draw() -> Any:
            sample = fed.buffer.request_sample(random.random(batch_size)).result()
            return backend.to_device(training_batch(sample, 1, 0).arrays)

        def wait_for(outputs: dict[str, Any]) -> None:
            # All that a learner looks at comes to the host in every way.
            for value in outputs.values():
                np.asarray(value)

        def prefetched(seconds: float) -> float:
            with ThreadPoolExecutor(1) as thread:
                ahead = deque(thread.submit(draw) for _ in range(AHEAD))

                def step() -> None:
                    ahead.append(thread.submit(draw))
                    wait_for(host.trainer.step(ahead.popleft().result()))

                return timed(step, seconds)

        turns = []
        for window in (0.2, *[self._window_s] * self._runs):
            copied_ms = 1000 / timed(lambda: wait_for(host.trainer.step(draw())), window)
            prefetched_ms = 1000 / prefetched(window)
            fused_ms = 1000 / timed(lambda: wait_for(fused.step()), window)
            turns.append(
                {
                    "host_ms": copied_ms,
                    "prefetched_ms": prefetched_ms,
                    "device_ms": fused_ms,
                    "speedup_percent": 100 * (copied_ms / fused_ms - 1),
                    "speedup_percent_over_prefetched": 100 * (prefetched_ms / fused_ms - 1),
                }
            )
        return {
            "batch_size": batch_size,
            **series_of(turns[1:]),  # the first one compiles
            "paper_percent": PAPER_PERCENT.get(batch_size),
        }

    def insertion(self, sizes: Sequence[int]) -> dict[str, Any]:
        """Measure the microseconds a transition, for different numbers added at a time."""
        from seedbed.replay.buffer import SequenceBuffer
        from seedbed.replay.client.device import DeviceReplay

        spec = SequenceSpec(STATE, steps=1)
        sequences = max(4 * max(sizes), 1000)
        cases = []
        for size in sizes:
            storages: dict[str, Any] = {
                "host": SequenceBuffer(spec, sequences, 0.0),
                "device": DeviceReplay(self._backend, spec, sequences, 0.0, transfer_steps=size),
            }
            chunk = chunk_of(spec, size, 0, np.random.default_rng(0))
            case: dict[str, Any] = {"at_a_time": size}
            for name, replay in storages.items():
                add = _adder(replay, chunk)
                add()  # nothing can be drawn before the second one
                timed(add, 0.3)
                rates = [timed(add, self._window_s / 2) for _ in range(self._runs)]
                case[f"{name}_us"] = series([1e6 / (rate * size) for rate in rates])
            cases.append(case)
        return {"cases": cases, "paper_us": PAPER_INSERT_US}


def _adder(replay: Any, chunk: SequenceChunk) -> Callable[[], None]:
    """Return a function that adds the chunk once more, and waits until it is stored."""
    numbers = count()

    def add() -> None:
        number = next(numbers)
        replay.add(replace(chunk, chunk_index=number))
        if number and hasattr(replay, "draw_batch"):
            np.asarray(replay.draw_batch(np.zeros((1, 2), np.float32))["items"])

    return add
