"""Batches under way: several shards answer parts of a batch, which are joined here."""

import time
import weakref
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.sequence import UNTIMED, Sample, SequenceSpec
from seedbed.v1 import replay_pb2 as wire


def split_by_priority(
    uniform: NDArray[np.float64], total_priorities: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Choose a shard for each number, in proportion to the shards' total priorities.

    What is left of a number once its shard is chosen is uniform in [0, 1) again.

    Args:
        uniform: [B] numbers in [0, 1).
        total_priorities: [shards], not all of them 0.

    Returns:
        The shard [B] of each number, and the number [B] with which the shard samples.
    """
    ends = np.cumsum(total_priorities)
    point = uniform * ends[-1]
    shard = np.searchsorted(ends, point, side="right")
    # Rounding may have reached the end.
    shard = np.minimum(shard, np.flatnonzero(total_priorities)[-1])
    rest = (point - (ends - total_priorities)[shard]) / total_priorities[shard]
    return shard, np.clip(rest, 0.0, np.nextafter(1.0, 0.0))


class FramePool:
    """Memory of batches' frames, used again once no array refers to it. Thread-safe.

    A batch of 64 Atari sequences is 54 MB; fresh memory costs more page faults than its copy.

    Args:
        keep: Free pieces of memory that are kept.
    """

    def __init__(self, keep: int) -> None:
        self._free: deque[bytearray] = deque(maxlen=keep)

    def new(self, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        """Return an array with undefined contents.

        Args:
            shape: Shape of the array.
            dtype: NumPy's name of the dtype.
        """
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = bytearray()
        if len(memory) != size:
            memory = bytearray(size)
        # Views of an array refer to the array, and the array to the memory, so the finalizer runs
        # after the last view is gone.
        flat = np.frombuffer(memory, dtype)
        weakref.finalize(flat, self._free.append, memory).atexit = False
        return flat.reshape(shape)


class SampleRequest:
    """One batch: arrays that are filled as sequences come, and the future of the whole sample.

    Args:
        spec: Sizes of a sequence.
        uniform: [B] numbers in [0, 1).
        frames: Memory for the frames.
    """

    def __init__(self, spec: SequenceSpec, uniform: NDArray[np.float64], frames: FramePool) -> None:
        self.future: Future[Sample] = Future()
        self.uniform = uniform
        b, specs = len(uniform), spec.arrays()
        self._missing = b
        shape = (spec.frames, b, *spec.observation.shape)
        arrays: dict[str, NDArray[Any]] = {"observation": frames.new(shape, spec.observation.dtype)}
        for name in ("flags", "reward", "action"):
            arrays[name] = np.empty((*specs[name].shape, b), specs[name].dtype)
        for name in UNTIMED:
            arrays[name] = np.empty((b, *specs[name].shape), specs[name].dtype)
        self._sample = Sample(
            keys=np.empty(b, np.int64),
            probability=np.empty(b, np.float64),
            arrays=arrays,
            version=np.empty(b, np.float64),
            age_s=np.empty(b, np.float64),
        )

    def fill(self, part: "ShardRequest", arrays: dict[str, NDArray[Any]], total: float) -> None:
        """Copy the sequences of a part into the batch; complete the future with the last part.

        Args:
            part: Where the sequences belong.
            arrays: [n, ...], by the names of `codec.sample_arrays`.
            total: Total priority of the shard when it sampled.
        """
        try:
            self._copy(part, arrays, total)
        except Exception as error:
            self.fail(RuntimeError(f"a batch was not put together: {error}"))
        self._missing -= len(part.places)
        if not self._missing:
            # The future may have failed meanwhile, in another thread, or been cancelled.
            with suppress(InvalidStateError):
                self.future.set_result(self._sample)

    def _copy(self, part: "ShardRequest", arrays: dict[str, NDArray[Any]], total: float) -> None:
        sample, places = self._sample, part.places
        for source, place in enumerate(places.tolist()):
            sample.arrays["observation"][:, place] = arrays["frames"][source]
        for name in ("flags", "reward", "action"):
            sample.arrays[name][:, places] = arrays[name].swapaxes(0, 1)
        for name in UNTIMED:
            sample.arrays[name][places] = arrays[name]
        sample.keys[places] = arrays["key"]
        sample.probability[places] = part.shard_probability * arrays["scaled_priority"] / total
        sample.version[places], sample.age_s[places] = arrays["version"], arrays["age"]

    def fail(self, error: Exception) -> None:
        """Complete the future with an error, unless it is complete already."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(eq=False)
class ShardRequest:
    """Sequences of a batch that one shard was asked for."""

    sample: SampleRequest
    places: NDArray[np.int64]  # [n], in the batch
    uniform: NDArray[np.float64]  # [n]
    shard_probability: float = 0.0  # with which the shard was chosen
    since: float = field(default_factory=time.monotonic)
    tries: int = 0  # earlier draws for these places, which were refused

    def split(self, count: int) -> "list[ShardRequest]":
        """Return requests of the same sequences that are answered by one message each."""
        return [
            replace(
                self, places=self.places[at : at + count], uniform=self.uniform[at : at + count]
            )
            for at in range(0, len(self.places), count)
        ]

    def message(self, number: int) -> list[bytes]:
        """Serialize the request; return the pieces.

        Args:
            number: How many messages the stream has had.
        """
        request = wire.SampleRequest(request=number + 1, uniform=self.uniform.tobytes())
        return [request.SerializeToString()]
