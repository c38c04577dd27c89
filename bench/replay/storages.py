"""Insertion, sampling and priorities of the storages within the learner, next to a memory copy.

Run as a process of its own, since it chooses Keras's backend: `python -m bench.replay.storages`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.figures import ratio, series
from bench.replay.content import atari, chunk_of
from seedbed import backends
from seedbed.backends.protocol import Backend
from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.sequence import SequenceChunk
from seedbed.runtime.allocator import keep_large_blocks

ENVIRONMENTS = 32
BATCH = 64
EXPONENT = 0.9


def timed(action: Callable[[], Any], window_s: float) -> float:
    """Return how often a second an action runs, for at least a window."""
    done, started = 0, time.perf_counter()
    while True:
        action()
        done += 1
        passed = time.perf_counter() - started
        if passed >= window_s:
            return done / passed


class Bare:
    """Memory copies of as many bytes as an insertion or a sample has."""

    def __init__(self, capacity_bytes: int) -> None:
        self._memory = np.ones(capacity_bytes, np.uint8)
        self._at = 0

    def write(self, array: NDArray[Any]) -> None:
        """Copy an array into the memory, at the next place."""
        source = array.reshape(-1).view(np.uint8)
        if self._at + source.size > self._memory.size:
            self._at = 0
        np.copyto(self._memory[self._at : self._at + source.size], source)
        self._at += source.size

    def read(self, size: int) -> NDArray[np.uint8]:
        """Copy bytes out of the memory, from the next place, into a new array."""
        if self._at + size > self._memory.size:
            self._at = 0
        self._at += size
        return self._memory[self._at - size : self._at].copy()


def measure(replay: Any, sample: Callable[[], NDArray[np.int64]], capacity: int, runs: int,
            window_s: float) -> dict[str, Any]:  # fmt: skip
    """Measure the rates of a replay, each in turn with a bare copy of the same bytes."""
    spec, random = replay.spec, np.random.default_rng(0)
    chunks = [chunk_of(spec, ENVIRONMENTS, 0, random) for _ in range(3)]
    number = 0

    def insert() -> None:
        nonlocal number
        chunk: SequenceChunk = chunks[number % 3]
        replay.add(replace(chunk, chunk_index=number))
        number += 1

    for _ in range(2 * capacity // ENVIRONMENTS):  # every page once, and evictions
        insert()
    bare = Bare(capacity * spec.steps * spec.observation.row_bytes)
    sample_bytes = BATCH * spec.frames * spec.observation.row_bytes
    priority = np.ones(BATCH, np.float32)
    found: dict[str, list[float]] = {
        name: [] for name in ("insert", "bare_insert", "sample", "bare_sample", "priorities")
    }
    sample()
    for _ in range(runs):
        found["insert"].append(ENVIRONMENTS * timed(insert, window_s))
        copy_in = timed(lambda: bare.write(chunks[0].frames), window_s)
        found["bare_insert"].append(ENVIRONMENTS * copy_in)
        found["sample"].append(BATCH * timed(sample, window_s))
        found["bare_sample"].append(BATCH * timed(lambda: bare.read(sample_bytes), window_s))
        update = partial(replay.update_priorities, sample(), priority)
        found["priorities"].append(BATCH * timed(update, window_s))
    return {
        "insert_sequences_per_s": series(found["insert"]),
        "insert_of_copy": ratio(found["insert"], found["bare_insert"]),
        "sample_sequences_per_s": series(found["sample"]),
        "sample_of_copy": ratio(found["sample"], found["bare_sample"]),
        "priorities_per_s": series(found["priorities"]),
    }


def host(capacity: int, runs: int, window_s: float) -> dict[str, Any]:
    """Measure replay in the learner's RAM."""
    replay = SequenceBuffer(atari(), capacity, EXPONENT)
    random = np.random.default_rng(1)
    return measure(
        replay,
        lambda: replay.request_sample(random.random(BATCH)).result().keys,
        capacity,
        runs,
        window_s,
    )


def device(backend: Backend, capacity: int, runs: int, window_s: float) -> dict[str, Any]:
    """Measure replay on the device. Fetches the items of each sample, to wait for it."""
    from seedbed.replay.client.device import DeviceReplay

    replay = DeviceReplay(backend, atari(), capacity, EXPONENT, transfer_steps=ENVIRONMENTS * 80)
    random = np.random.default_rng(1)

    def sample() -> NDArray[np.int64]:
        batch = replay.draw_batch(random.random((BATCH, 2), np.float32))
        keys: NDArray[np.int64] = replay.ring.key[np.asarray(batch["items"])]
        return keys

    return {
        "device": backend.devices()[0],
        **measure(replay, sample, capacity, runs, window_s),
    }


def main() -> None:
    """Print the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("tensorflow", "jax"), required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--sequences", type=int, default=1024)
    args = parser.parse_args()
    keep_large_blocks()
    backend = backends.use(args.backend)
    print(
        json.dumps(
            {
                "host": host(args.sequences, args.runs, args.window_s),
                "device": device(backend, args.sequences, args.runs, args.window_s),
            }
        )
    )


if __name__ == "__main__":
    main()
