"""The prioritized sequence buffer: one class for the learner's RAM and for a replay shard.

NumPy only. State is a dict of arrays; it lies in memory, or in files that `files.py` maps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.replay.ring import Ring
from seedbed.replay.sequence import Sample, SequenceChunk, SequenceSpec
from seedbed.replay.sum_tree import SumTree
from seedbed.spec import ArraySpec

_SMALL_BYTES = 4096  # below it one indexed copy is faster than a loop over sequences


def stored_arrays(spec: SequenceSpec) -> dict[str, ArraySpec]:
    """What one item of a buffer holds: a sequence, its priority, and who it is."""
    return {
        **spec.arrays(),
        "priority": ArraySpec((), "float32"),
        "key": ArraySpec((), "int64"),
        "previous": ArraySpec((), "int64"),
    }


def buffer_bytes(spec: SequenceSpec, capacity: int) -> int:
    """Memory of a full buffer, all told, in bytes."""
    item = sum(array.row_bytes for array in stored_arrays(spec).values())
    ring = 8 + 8 + 8 + 1  # its copies of key and previous, the heirs, and who is whole
    tree = 2 * 8 * (1 << (capacity - 1).bit_length())
    return capacity * (item + ring) + tree


def check_block(spec: SequenceSpec, block: SequenceChunk) -> None:
    """Whether a block fits a replay of `spec`.

    Raises:
        ValueError: it does not.
    """
    e = block.environments
    for name, array in spec.arrays().items():
        if name in ("version", "time"):
            continue
        given = getattr(block, name)
        timed = name in ("frames", "flags", "reward", "action")
        shape = (array.shape[0], e, *array.shape[1:]) if timed else (e, *array.shape)
        if (given.shape, str(given.dtype)) != (shape, array.dtype):
            raise ValueError(
                f"{name} of a block is {given.dtype}{list(given.shape)}, and this replay holds "
                f"{array.dtype}{list(shape)}: sequences of {spec.burn_in} + {spec.steps} steps"
            )
    _check_numbers(block.priority, np.arange(e), "sequence")


def check_priorities(
    keys: NDArray[np.int64], priority: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Keys and their new priorities, [B] each, of the right dtypes.

    Raises:
        ValueError: a priority is negative, NaN or infinite, or there are not as many as keys.
    """
    keys, priority = np.asarray(keys, np.int64), np.asarray(priority, np.float32)
    if keys.shape != priority.shape or keys.ndim != 1:
        raise ValueError(f"keys {list(keys.shape)} with priorities {list(priority.shape)}")
    _check_numbers(priority, keys, "key")
    return keys, priority


def _check_numbers(priority: NDArray[np.float32], names: NDArray[np.int64], what: str) -> None:
    wrong = ~(np.isfinite(priority) & (priority >= 0))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"priority {priority[place]} of {what} {names[place]} must be finite and not negative"
        )


class SequenceBuffer:
    """Sequences with priorities, first in first out. Not thread-safe.

    Args:
        spec: sizes of a sequence.
        capacity: items. The first P blocks of a chain are items that cannot be sampled.
        exponent: α; a sequence of priority p is drawn with probability p^α / Σ p^α. 0 is uniform.
        arrays: where the state lies, `stored_arrays` of `capacity` rows each; what is in them
            is taken over. Memory that is all zeros otherwise.

    Raises:
        ValueError: capacity or exponent cannot be.
    """

    def __init__(
        self,
        spec: SequenceSpec,
        capacity: int,
        exponent: float,
        arrays: dict[str, NDArray[Any]] | None = None,
    ) -> None:
        if not exponent >= 0:
            raise ValueError(f"exponent {exponent} must not be negative")
        self.spec = spec
        self.capacity = capacity
        self.exponent = exponent
        self.stale_updates = 0  # priorities that came for sequences already replaced
        self.inserted = 0  # sequences, in this life
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
            self._take_over()

    @property
    def sampleable(self) -> int:
        """Sequences that can be drawn."""
        return self.ring.sampleable

    @property
    def mass(self) -> float:
        """Σ p^α."""
        return self._tree.total

    def add(self, block: SequenceChunk) -> int:
        """Insert a block; the oldest sequences give way. Returns how many can be drawn of it.

        Raises:
            ValueError: an array's shape or a priority is wrong; nothing has changed then.
        """
        check_block(self.spec, block)
        weight = self._weight(block.priority)
        added = self.ring.add(block.chain, block.number, block.environments)
        items = self.ring.item(added.keys)
        self._tree.set(added.retired, np.zeros(len(added.retired)))
        arrays = self._arrays
        # Whoever is killed in between leaves items that nobody owns, not torn ones.
        arrays["key"][items] = -1
        if self.spec.steps * self.spec.observation.row_bytes < _SMALL_BYTES:
            arrays["frames"][items] = block.frames.swapaxes(0, 1)
        else:
            for column, item in enumerate(items.tolist()):
                arrays["frames"][item] = block.frames[:, column]
        for name in ("flags", "reward", "action"):
            arrays[name][items] = getattr(block, name).swapaxes(0, 1)
        for name in ("previous_action", "state", "priority", "version"):
            arrays[name][items] = getattr(block, name)
        arrays["time"][items] = time.time()
        arrays["previous"][items] = self.ring.previous[items]
        self._seal(items, added.keys)
        self._tree.set(items, np.where(added.whole, weight, 0.0))
        self.inserted += block.environments
        return int(np.count_nonzero(added.whole))

    def _seal(self, items: NDArray[np.int64], keys: NDArray[np.int64]) -> None:
        """Write the keys, after everything else. `files.py` writes checksums before them."""
        self._arrays["key"][items] = keys

    def _weight(self, priority: NDArray[np.float32]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            weight: NDArray[np.float64] = np.asarray(priority, np.float64) ** self.exponent
        if not np.isfinite(weight).all():
            raise ValueError(f"priority {priority.max()} to the power of {self.exponent} overflows")
        return weight

    def sample(self, uniform: NDArray[np.float64]) -> Sample:
        """Draw B sequences for numbers [B] uniform in [0, 1).

        Raises:
            ValueError: nothing can be drawn.
        """
        items = self.draw(uniform)
        arrays = self._arrays
        whole = {name: arrays[name][items].swapaxes(0, 1) for name in ("flags", "reward", "action")}
        return Sample(
            keys=self.ring.key[items],
            probability=self.weights(items) / self.mass,
            arrays={
                "observation": self._frames(items),
                **{name: np.ascontiguousarray(array) for name, array in whole.items()},
                **{name: arrays[name][items] for name in ("previous_action", "state")},
            },
            version=arrays["version"][items],
            age_s=self._age(items),
        )

    def draw(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        """The items [B] that `sample` gives.

        Raises:
            ValueError: nothing can be drawn.
        """
        if not self.sampleable:
            raise ValueError(
                f"nothing can be drawn: {self.ring.size} of {self.capacity} items are in use, and "
                f"none of them has the {self.spec.predecessors} blocks before it yet"
            )
        return self._tree.draw(uniform)

    def weights(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        """p^α [B] of items [B]."""
        return self._tree.weights(items)

    def fields(self, items: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """All of sequences [B] but their frames, and `age`, with the axis of sequences first."""
        fields = {
            name: self._arrays[name][items]
            for name in ("version", "reward", "action", "previous_action", "state", "flags")
        }
        return {"key": self.ring.key[items], "age": self._age(items), **fields}

    def frame_pieces(self, items: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Views of the frames of whole sequences as they lie here, each sequence's in order.

        Each is contiguous; all of them together are [B, F, *shape]. The next `add` changes them.
        """
        spec, stored = self.spec, self._arrays["frames"]
        hops = self.ring.hops(self.ring.key[items])
        there = np.stack([self.ring.item(keys) for keys in hops], axis=1)  # [B, P+1]
        rows = [spec.steps] * spec.predecessors
        rows.append(spec.frames - spec.steps * spec.predecessors)
        return [
            stored[item, spec.steps - count :]
            for chain in there.tolist()
            for item, count in zip(reversed(chain), reversed(rows), strict=True)
        ]

    def _age(self, items: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.maximum(time.time() - self._arrays["time"][items], 0.0)

    def _frames(self, items: NDArray[np.int64]) -> NDArray[Any]:
        """The frames [F, B, *shape] of whole sequences, from their own items and those before."""
        spec, stored = self.spec, self._arrays["frames"]
        frames = np.empty((spec.frames, len(items), *spec.observation.shape), stored.dtype)
        stop = spec.frames
        for keys in self.ring.hops(self.ring.key[items]):
            rows = min(spec.steps, stop)
            there = self.ring.item(keys)
            if rows * spec.observation.row_bytes < _SMALL_BYTES:
                frames[stop - rows : stop] = stored[there, spec.steps - rows :].swapaxes(0, 1)
            else:
                for column, item in enumerate(there.tolist()):
                    frames[stop - rows : stop, column] = stored[item, spec.steps - rows :]
            stop -= rows
        return frames

    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> int:
        """Give sequences new priorities; those already replaced are left out, and counted.

        Returns how many were left out.

        Raises:
            ValueError: a priority is negative, NaN or infinite; nothing has changed then.
        """
        keys, priority = check_priorities(keys, priority)
        there = self.ring.is_there(keys)
        there &= self.ring.whole[self.ring.item(keys)]
        items, priority = self.ring.item(keys[there]), priority[there]
        self._arrays["priority"][items] = priority
        self._tree.set(items, self._weight(self._arrays["priority"][items]))
        stale = int(len(keys) - len(items))
        self.stale_updates += stale
        return stale

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """A copy of the whole state, for `restore`."""
        return {name: array.copy() for name, array in self._arrays.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take a state. Streams go on as new chains.

        Raises:
            ValueError: it is of another buffer, with the name and both shapes.
        """
        for name, array in self._arrays.items():
            given = state.get(name)
            if given is None or (given.shape, given.dtype) != (array.shape, array.dtype):
                shape = None if given is None else f"{given.dtype}{list(given.shape)}"
                raise ValueError(
                    f"{name} of the state is {shape}, and of this replay "
                    f"{array.dtype}{list(array.shape)}"
                )
        for name, array in self._arrays.items():
            array[:] = state[name]
        self._take_over()

    def _take_over(self) -> None:
        """Settle from the arrays what can be drawn."""
        arrays = self._arrays
        self.ring.restore(arrays["key"], arrays["previous"])
        # `previous` stays as it was sealed: the ring leaves out whoever is not there.
        arrays["key"][:] = self.ring.key
        priority = arrays["priority"]
        # A priority that was torn by a crash: as if it were the usual one.
        usable = np.isfinite(priority) & (priority >= 0)
        stored = priority[usable & (self.ring.key >= 0)]
        priority[~usable] = float(np.median(stored)) if stored.size else 1.0
        weight = np.where(self.ring.whole, self._weight(priority), 0.0)
        self._tree.set(np.arange(self.capacity), weight)
