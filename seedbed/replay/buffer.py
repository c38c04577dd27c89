"""Prioritized sequence buffer: one class for the learner's RAM and for a replay shard.

NumPy only. The state is a dict of arrays in memory, or in files that `mapped_files.py` maps.
"""

import time
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.numbers import MAX_PRIORITY
from seedbed.replay.replay_buffer import ReplayBuffer, ReplayStats
from seedbed.replay.ring import Ring
from seedbed.replay.sequence import (
    TIMED,
    UNTIMED,
    Sample,
    SequenceChunk,
    SequenceSpec,
    chunk_arrays,
)
from seedbed.replay.sum_tree import SumTree
from seedbed.spec import ArraySpec

# Bytes of a sequence's frames below which one indexed copy is faster than a loop over sequences.
_SMALL_BYTES = 4096


def _is_small(spec: SequenceSpec) -> bool:
    """Return whether the frames of a chunk are copied by one index."""
    return spec.steps * spec.observation.row_bytes < _SMALL_BYTES


def stored_arrays(spec: SequenceSpec) -> dict[str, ArraySpec]:
    """Return what one item of a buffer holds: a sequence, its priority and its keys."""
    return {
        **spec.arrays(),
        "priority": ArraySpec((), "float32"),
        "key": ArraySpec((), "int64"),
        "previous": ArraySpec((), "int64"),
    }


def buffer_bytes(spec: SequenceSpec, capacity: int) -> int:
    """Return the memory of a full buffer, all arrays included, in bytes."""
    item = sum(array.row_bytes for array in stored_arrays(spec).values())
    # The ring's own key and previous, the dependent keys, and the sampleable flags.
    ring = 8 + 8 + 8 + 1
    tree = 2 * 8 * (1 << (capacity - 1).bit_length())
    return capacity * (item + ring) + tree


def check_chunk(spec: SequenceSpec, chunk: SequenceChunk) -> None:
    """Check that a chunk fits a replay.

    Args:
        spec: Sizes of the replay's sequences.
        chunk: The chunk.

    Raises:
        ValueError: An array's shape or dtype differs, or a priority is negative, NaN or infinite.
    """
    arrays = chunk_arrays(spec, chunk.environments)
    for name in (*TIMED, *UNTIMED):
        array, held = getattr(chunk, name), arrays[name]
        if array.shape != held.shape or array.dtype != held.dtype:
            given = ArraySpec(array.shape, str(array.dtype))
            raise ValueError(
                f"{name} of a chunk is {given}, and this replay holds {arrays[name]}: sequences "
                f"of {spec.burn_in} + {spec.steps} steps"
            )
    _check_finite(chunk.priority, np.arange(chunk.environments), "sequence")


def check_priorities(
    keys: NDArray[np.int64], priority: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Convert keys and their new priorities to the right dtypes, and check them.

    Args:
        keys: [B].
        priority: [B], finite and not negative.

    Raises:
        ValueError: A priority is negative, NaN or infinite, or the two lengths differ.
    """
    keys, priority = np.asarray(keys, np.int64), np.asarray(priority, np.float32)
    if keys.shape != priority.shape or keys.ndim != 1:
        raise ValueError(f"keys {list(keys.shape)} with priorities {list(priority.shape)}")
    _check_finite(priority, keys, "key")
    return keys, priority


def _check_finite(priority: NDArray[np.float32], names: NDArray[np.int64], what: str) -> None:
    wrong = ~(np.isfinite(priority) & (priority >= 0))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"priority {priority[place]} of {what} {names[place]} must be finite and not negative"
        )


class SequenceBuffer(ReplayBuffer):
    """Sequences with priorities, first in first out. Not thread-safe.

    Args:
        spec: Sizes of a sequence.
        capacity: Items. The first P chunks of a stream take items that cannot be sampled.
        exponent: α, not negative. A sequence of priority p is drawn with probability
            p^α / Σ p^α; 0 is uniform.
        arrays: The state, `stored_arrays` with a leading axis of `capacity`; its contents are
            taken over. None: new memory.

    Raises:
        ValueError: The capacity is below 1.
    """

    def __init__(
        self,
        spec: SequenceSpec,
        capacity: int,
        exponent: float,
        arrays: dict[str, NDArray[Any]] | None = None,
    ) -> None:
        self.spec = spec
        self.capacity = capacity
        self.exponent = exponent
        self.bytes = buffer_bytes(spec, capacity)  # when full
        self._tree = SumTree(capacity)
        self.ring = Ring(capacity, spec.predecessors)
        if arrays is None:
            self._arrays = {
                name: np.zeros((capacity, *array.shape), array.dtype)
                for name, array in stored_arrays(spec).items()
            }
            self._arrays["key"].fill(-1)
        else:
            self._arrays = arrays
            self._rebuild_index()

    @property
    def sampleable(self) -> int:
        """Sequences that can be sampled."""
        return self.ring.sampleable

    @property
    def total_priority(self) -> float:
        """Σ p^α of the sequences that can be sampled."""
        return self._tree.total

    @override
    def add(self, chunk: SequenceChunk) -> None:
        # In place of the oldest sequences.
        check_chunk(self.spec, chunk)
        scaled = self._scaled(chunk.priority)
        added = self.ring.add(chunk.stream_id, chunk.chunk_index, chunk.environments)
        items = self.ring.item(added.keys)
        self._tree.set(added.invalidated, np.zeros(len(added.invalidated)))
        arrays = self._arrays
        # Empty the items first: a process killed in between leaves empty items, not torn ones.
        arrays["key"][items] = -1
        # Copy the chunk's arrays.
        if _is_small(self.spec):
            arrays["frames"][items] = chunk.frames.swapaxes(0, 1)
        else:
            for env, item in enumerate(items.tolist()):
                arrays["frames"][item] = chunk.frames[:, env]
        for name in ("flags", "reward", "action"):
            arrays[name][items] = getattr(chunk, name).swapaxes(0, 1)
        for name in (*UNTIMED, "priority", "version"):
            arrays[name][items] = getattr(chunk, name)
        arrays["time"][items] = time.time()
        arrays["previous"][items] = self.ring.previous[items]
        # Make the items valid, and the sampleable ones of them drawable.
        self._commit(items, added.keys)
        self._tree.set(items, np.where(added.sampleable, scaled, 0.0))

    def _commit(self, items: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
        """Write the keys, after everything else. `FileBuffer` writes checksums before them."""
        self._arrays["key"][items] = keys

    def _scaled(self, priority: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return p^α [B]. A priority of 0 stays 0 with every exponent: it is never drawn."""
        with np.errstate(over="ignore"):
            scaled: NDArray[np.float64] = np.asarray(priority, np.float64) ** self.exponent
        scaled = np.where(priority > 0, scaled, 0.0)
        if not np.isfinite(scaled).all():
            raise ValueError(f"priority {priority.max()} to the power of {self.exponent} overflows")
        return scaled

    @override
    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        future: Future[Sample] = Future()
        try:
            future.set_result(self.sample(uniform))
        except ValueError as error:  # all priorities are 0
            future.set_exception(error)
        return future

    def sample(self, uniform: NDArray[np.float64]) -> Sample:
        """Draw B sequences in proportion to their scaled priorities.

        Args:
            uniform: [B] numbers in [0, 1).

        Raises:
            ValueError: No sequence can be sampled.
        """
        items = self.draw(uniform)
        fields = self.fields(items)
        timed = {name: fields[name].swapaxes(0, 1) for name in ("flags", "reward", "action")}
        return Sample(
            keys=fields["key"],
            probability=fields["scaled_priority"] / self.total_priority,
            arrays={
                "observation": self._frames(items),
                **{name: np.ascontiguousarray(array) for name, array in timed.items()},
                **{name: fields[name] for name in UNTIMED},
            },
            version=fields["version"],
            age_s=fields["age"],
        )

    def draw(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw the items [B] whose sequences `sample` returns.

        Args:
            uniform: [B] numbers in [0, 1).

        Raises:
            ValueError: No sequence can be sampled.
        """
        if not self.sampleable:
            raise ValueError(
                f"nothing can be drawn: {self.ring.size} of {self.capacity} items are in use, and "
                f"none of them has the {self.spec.predecessors} chunks before it yet"
            )
        return self._tree.draw(uniform)

    def fields(self, items: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the arrays [B, ...] of `codec.sample_arrays`, without the frames.

        Args:
            items: [B].
        """
        arrays = self._arrays
        return {
            "key": self.ring.key[items],
            "scaled_priority": self._tree.weights(items),
            "age": np.maximum(time.time() - arrays["time"][items], 0.0),
            **{name: arrays[name][items] for name in ("version", "flags", "reward", "action")},
            **{name: arrays[name][items] for name in UNTIMED},
        }

    def frame_views(self, items: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return the frames of sampleable sequences, as contiguous pieces.

        Joined, they are [B, F, *shape]. Large ones are views of what is stored, which the next
        `add` changes.

        Args:
            items: [B].
        """
        spec, stored = self.spec, self._arrays["frames"]
        keys = self.ring.predecessor_keys(self.ring.key[items])
        chunks = np.stack([self.ring.item(one) for one in keys], axis=1)  # [B, P+1], newest first
        counts = [spec.steps] * spec.predecessors
        counts.append(spec.frames - spec.steps * spec.predecessors)
        if _is_small(spec):
            parts = zip(reversed(chunks.T), reversed(counts), strict=True)
            pieces = [stored[of, spec.steps - count :] for of, count in parts]
            return [np.concatenate(pieces, axis=1)]
        return [
            stored[item, spec.steps - count :]
            for sequence in chunks.tolist()
            for item, count in zip(reversed(sequence), reversed(counts), strict=True)
        ]

    def _frames(self, items: NDArray[np.int64]) -> NDArray[Any]:
        """Return the frames [F, B, *shape] of sampleable sequences."""
        spec, stored = self.spec, self._arrays["frames"]
        rows = np.empty((spec.frames, len(items)), np.int64)
        stop = spec.frames
        # From the newest chunk back.
        for keys in self.ring.predecessor_keys(self.ring.key[items]):
            count = min(spec.steps, stop)
            newest = np.arange(spec.steps - count, spec.steps)
            rows[stop - count : stop] = self.ring.item(keys) * spec.steps + newest[:, None]
            stop -= count
        frames: NDArray[Any] = stored.reshape(-1, *spec.observation.shape).take(rows, axis=0)
        return frames

    @override
    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        keys, priority = check_priorities(keys, priority)
        valid = self.ring.accept_updates(keys)
        items = self.ring.item(keys[valid])
        self._arrays["priority"][items] = priority[valid]
        # Of a key that occurs twice, the last priority counts.
        self._tree.set(items, self._scaled(self._arrays["priority"][items]))

    @override
    def stats(self) -> ReplayStats:
        return self.ring.stats(self.bytes)

    def _rebuild_index(self) -> None:
        """Rebuild the ring and the sum tree from the arrays."""
        arrays = self._arrays
        self.ring.restore(arrays["key"], arrays["previous"])
        # `previous` stays as it was committed: the ring leaves out keys that are not stored.
        arrays["key"][:] = self.ring.key
        priority = arrays["priority"]
        # Replace priorities that a crash has torn by the median.
        usable = (priority >= 0) & (priority <= MAX_PRIORITY)
        stored = priority[usable & (self.ring.key >= 0)]
        priority[~usable] = float(np.median(stored)) if stored.size else 1.0
        scaled = np.where(self.ring.is_sampleable, self._scaled(priority), 0.0)
        self._tree.set(np.arange(self.capacity), scaled)

    def discard(self) -> None:
        """Close the buffer for good: its sequences are not needed any more."""
        self.close()
