"""Child: insertion, sampling and priorities of the storages within the learner.

Next to a memory copy. A process of its own, since it chooses Keras's backend.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.figures import series_of
from bench.replay.content import atari, chunk_of
from seedbed import backends
from seedbed.replay.buffer import SequenceBuffer
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


class Storages:
    """Replay in the learner's RAM and on its device."""

    def __init__(self, backend: str, sequences: int, runs: int, window_s: float) -> None:
        keep_large_blocks()
        self._backend = backends.use(backend)
        self._sequences, self._runs, self._window_s = sequences, runs, window_s
        self._random = np.random.default_rng(1)

    def host(self) -> dict[str, Any]:
        """Measure replay in the learner's RAM."""
        replay = SequenceBuffer(atari(), self._sequences, EXPONENT)

        def sample() -> NDArray[np.int64]:
            return replay.request_sample(self._random.random(BATCH)).result().keys

        return self._measure(replay, sample)

    def device(self) -> dict[str, Any]:
        """Measure replay on the device. Fetches the items of each sample, to wait for it."""
        from seedbed.replay.client.device import DeviceReplay

        backend, transfer = self._backend, ENVIRONMENTS * 80
        replay = DeviceReplay(backend, atari(), self._sequences, EXPONENT, transfer_steps=transfer)

        def sample() -> NDArray[np.int64]:
            batch = replay.draw_batch(self._random.random((BATCH, 2), np.float32))
            keys: NDArray[np.int64] = replay.ring.key[np.asarray(batch["items"])]
            return keys

        return {"device": backend.devices()[0], **self._measure(replay, sample)}

    def _measure(
        self, replay: Any, sample: Callable[[], NDArray[np.int64]]
    ) -> dict[str, dict[str, Any]]:
        """Measure the rates of an empty replay, each in turn with a bare copy of the same bytes.

        Args:
            replay: What chunks are added to.
            sample: Draws a batch, and returns its keys.
        """
        spec, random = replay.spec, np.random.default_rng(0)
        chunks = [chunk_of(spec, ENVIRONMENTS, 0, random) for _ in range(3)]
        numbers = count()

        def insert() -> None:
            number = next(numbers)
            replay.add(replace(chunks[number % 3], chunk_index=number))

        for _ in range(2 * self._sequences // ENVIRONMENTS):  # every page once, and evictions
            insert()
        bare = Bare(self._sequences * spec.steps * spec.observation.row_bytes)
        sample_bytes = BATCH * spec.frames * spec.observation.row_bytes
        priority = np.ones(BATCH, np.float32)
        sample()
        turns = []
        for _ in range(self._runs):
            inserted = timed(insert, self._window_s)
            copied_in = timed(lambda: bare.write(chunks[0].frames), self._window_s)
            sampled = timed(sample, self._window_s)
            copied_out = timed(lambda: bare.read(sample_bytes), self._window_s)
            updated = timed(partial(replay.update_priorities, sample(), priority), self._window_s)
            turns.append(
                {
                    "insert_sequences_per_s": ENVIRONMENTS * inserted,
                    "insert_of_copy": inserted / copied_in,
                    "sample_sequences_per_s": BATCH * sampled,
                    "sample_of_copy": sampled / copied_out,
                    "priorities_per_s": BATCH * updated,
                }
            )
        return series_of(turns)
