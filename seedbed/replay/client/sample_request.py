"""Batches under way: parts of them come from several shards and are put together here."""

from __future__ import annotations

import time
import weakref
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.sequence import Sample, SequenceSpec


def split_by_priority(
    uniform: NDArray[np.float64], masses: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For numbers [B] uniform in [0, 1): which shard each is for, and a number for that shard.

    Shards [N] are chosen in proportion to their masses, not all of them 0. What is left of a
    number once its shard is chosen is uniform in [0, 1) again.
    """
    ends = np.cumsum(masses)
    mass = uniform * ends[-1]
    shard = np.searchsorted(ends, mass, side="right")
    shard = np.minimum(shard, np.flatnonzero(masses)[-1])  # where rounding reached the end
    rest = (mass - (ends - masses)[shard]) / masses[shard]
    return shard, np.clip(rest, 0.0, np.nextafter(1.0, 0.0))


class Frames:
    """Memory of batches' frames, which is used again once nobody looks at it any more.

    A batch of 64 Atari sequences is 54 MB; fresh memory costs more page faults than its copy.
    Thread-safe.
    """

    def __init__(self, keep: int) -> None:
        self._free: deque[bytearray] = deque(maxlen=keep)

    def new(self, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        """An array that is not filled."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = bytearray()
        if len(memory) != size:
            memory = bytearray(size)
        # Views of an array refer to it, and it to the memory: it goes when the last one has gone.
        flat = np.frombuffer(memory, dtype)
        weakref.finalize(flat, self._free.append, memory).atexit = False
        return flat.reshape(shape)


class SampleRequest:
    """A batch: arrays that are filled as sequences come, and the future that waits for them."""

    def __init__(self, spec: SequenceSpec, uniform: NDArray[np.float64], frames: Frames) -> None:
        self.future: Future[Sample] = Future()
        self.since = time.monotonic()
        self.uniform = uniform
        b, arrays = len(uniform), spec.arrays()
        self._missing = b
        made: dict[str, NDArray[Any]] = {
            "observation": frames.new(
                (spec.frames, b, *spec.observation.shape), spec.observation.dtype
            )
        }
        for name in ("flags", "reward", "action"):
            made[name] = np.empty((*arrays[name].shape, b), arrays[name].dtype)
        for name in ("previous_action", "state"):
            made[name] = np.empty((b, *arrays[name].shape), arrays[name].dtype)
        self._sample = Sample(
            keys=np.empty(b, np.int64),
            probability=np.empty(b, np.float64),
            arrays=made,
            version=np.empty(b, np.float64),
            age_s=np.empty(b, np.float64),
        )

    def put(
        self, columns: NDArray[np.int64], arrays: dict[str, NDArray[Any]], share: float, mass: float
    ) -> bool:
        """Sequences [n, ...] of a shard with this share of the whole mass, and this mass then.

        Returns whether the batch is whole.
        """
        sample = self._sample
        for place, column in enumerate(columns.tolist()):
            sample.arrays["observation"][:, column] = arrays["frames"][place]
        for name in ("flags", "reward", "action"):
            sample.arrays[name][:, columns] = arrays[name].swapaxes(0, 1)
        for name in ("previous_action", "state"):
            sample.arrays[name][columns] = arrays[name]
        sample.keys[columns] = arrays["key"]
        sample.probability[columns] = share * arrays["scaled_priority"] / mass
        sample.version[columns], sample.age_s[columns] = arrays["version"], arrays["age"]
        self._missing -= len(columns)
        if not self._missing:
            finish(self.future, sample)
        return not self._missing

    def fail(self, error: Exception) -> None:
        """There will be no batch."""
        finish(self.future, error)


@dataclass(eq=False)
class ShardRequest:
    """Sequences of a batch that one shard was asked for."""

    draw: SampleRequest
    columns: NDArray[np.int64]  # [n], of the batch
    uniform: NDArray[np.float64]  # [n]
    share: float = 0.0  # of the shard's mass in all, when it was chosen
    since: float = field(default_factory=time.monotonic)

    def rest(self, answered: int) -> ShardRequest:
        """Without its first ones."""
        return ShardRequest(self.draw, self.columns[answered:], self.uniform[answered:], self.share)


def finish(future: Future[Any], result: Any) -> None:
    """Settle a future, unless it is already, or whoever waited for it has given up.

    A batch may come, in one thread, and fail, in another, at once.
    """
    with suppress(InvalidStateError):
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
