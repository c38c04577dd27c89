"""The training step of "Deep In-GPU Experience Replay" (section 5), with two replay storages.

Its dueling DQN on states of 27 floats, a million transitions, uniform sampling. Three ways to the
same update: drawn in RAM and copied before every step, as the paper's baseline; drawn and copied
ahead by a thread, as ours; and fused, on the device. Run as a process of its own:
`python -m bench.replay.training`.
"""

from __future__ import annotations

import argparse
import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bench.figures import series
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


class Ahead:
    """Thread that draws batches and copies them to the device, two ahead."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        self._draw = draw
        self._ready: queue.Queue[Any] = queue.Queue(2)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            batch = self._draw()
            while not self._stopping.is_set():
                try:
                    self._ready.put(batch, timeout=0.1)
                    break
                except queue.Full:
                    continue

    def get(self) -> Any:
        """The next batch, on the device."""
        return self._ready.get()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()


def steps(backend: Backend, batch_size: int, transitions: int, runs: int, window_s: float
          ) -> dict[str, Any]:  # fmt: skip
    """Measure the milliseconds of a training step in each way, in turn."""
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

    ways: dict[str, Callable[[], None]] = {
        "host": lambda: wait_for(host.trainer.step(draw())),
        "prefetched": lambda: wait_for(host.trainer.step(ahead.get())),
        "device": lambda: wait_for(fused.step()),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs + 1):  # the first one compiles
        for name, step in ways.items():
            if name == "prefetched":
                ahead = Ahead(draw)
            rate = timed(step, window_s if run else 0.2)
            if name == "prefetched":
                ahead.stop()
            if run:
                found[name].append(1000 / rate)

    def percent(name: str) -> dict[str, Any]:
        pairs = zip(found[name], found["device"], strict=True)
        return series([100 * (over / under - 1) for over, under in pairs])

    return {
        "batch_size": batch_size,
        **{f"{name}_ms": series(values) for name, values in found.items()},
        "speedup_percent": percent("host"),
        "speedup_percent_over_prefetched": percent("prefetched"),
        "paper_percent": PAPER_PERCENT.get(batch_size),
    }


def insertion(
    backend: Backend, sizes: tuple[int, ...], sequences: int, runs: int, window_s: float
) -> dict[str, Any]:
    """Measure the microseconds a transition, for different numbers added at a time."""
    from seedbed.replay.buffer import SequenceBuffer
    from seedbed.replay.client.device import DeviceReplay

    spec = SequenceSpec(STATE, steps=1)
    cases = []
    for size in sizes:
        storages: dict[str, Any] = {
            "host": SequenceBuffer(spec, sequences, 0.0),
            "device": DeviceReplay(backend, spec, sequences, 0.0, transfer_steps=size),
        }
        chunk = chunk_of(spec, size, 0, np.random.default_rng(0))
        case: dict[str, Any] = {"at_a_time": size}
        for name, replay in storages.items():
            add = _adder(backend, replay, chunk)
            add()  # nothing can be drawn before the second one
            timed(add, 0.3)
            rates = [timed(add, window_s) for _ in range(runs)]
            case[f"{name}_us"] = series([1e6 / (rate * size) for rate in rates])
        cases.append(case)
    return {"cases": cases, "paper_us": PAPER_INSERT_US}


def _adder(backend: Backend, replay: Any, chunk: SequenceChunk) -> Callable[[], None]:
    """Return a function that adds the chunk once more, and waits until it is stored."""
    count = 0

    def add() -> None:
        nonlocal count
        replay.add(replace(chunk, chunk_index=count))
        count += 1
        if count > 1 and hasattr(replay, "draw_batch"):
            np.asarray(replay.draw_batch(np.zeros((1, 2), np.float32))["items"])

    return add


def main() -> None:
    """Print the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("tensorflow", "jax"), required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, nargs="*", default=list(PAPER_PERCENT))
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 10, 100, 500, 2000, 10000])
    args = parser.parse_args()
    keep_large_blocks()
    backend = backends.use(args.backend)
    started = time.time()
    cases = [
        steps(backend, size, args.transitions, args.runs, args.window_s) for size in args.batches
    ]
    inserted = insertion(
        backend,
        tuple(args.sizes),
        max(4 * max(args.sizes), 1000),
        args.runs,
        args.window_s / 2,
    )
    print(
        json.dumps(
            {
                "backend": backend.name,
                "device": backend.devices()[0],
                "transitions": args.transitions,
                "steps": cases,
                "insertion": inserted,
                "seconds": round(time.time() - started, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
