"""Replay on the accelerator ("Deep In-GPU Experience Replay", section 4).

Storage, priorities and sampling are tables on the device; which sequence lives where is settled on
the host, which knows it from the keys alone. Frames go over once, `transfer_steps` steps at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend, Rows, Tables
from seedbed.replay.buffer import check_chunk, check_priorities
from seedbed.replay.client.replay_buffer import ReplayStats
from seedbed.replay.ring import Ring
from seedbed.replay.sequence import Sample, SequenceChunk, SequenceSpec
from seedbed.spec import ArraySpec
from seedbed.types import Tensor

# Items whose weights are summed. A draw looks for a sum by halving, then at all items of that sum.
WIDTH = 128

_TIMED = ("frames", "flags", "reward", "action")
_PLAIN = ("previous_action", "state")


def device_tables(spec: SequenceSpec, capacity: int) -> dict[str, tuple[int, ArraySpec]]:
    """Rows and row of each table. The last item is a spare one, for padding."""
    groups = -(-(capacity + 1) // WIDTH)
    stored = {
        name: (capacity + 1, array)
        for name, array in spec.arrays().items()
        if name not in ("version", "time")
    }
    number = ArraySpec((), "float32")
    return {
        **stored,
        "version": (capacity + 1, number),
        "time": (capacity + 1, number),  # seconds since the home was made
        "previous": (capacity + 1, ArraySpec((), "int32")),  # the item of the chunk before
        "weight": (groups * WIDTH, number),  # p^α, 0 where nothing can be drawn
        "mass": (groups, number),  # sums of WIDTH weights
        "draws": (1, ArraySpec((), "int32")),  # so far, for the random numbers
    }


def device_bytes(spec: SequenceSpec, capacity: int) -> int:
    """Memory on the device, in bytes."""
    return sum(rows * array.row_bytes for rows, array in device_tables(spec, capacity).values())


class DeviceReplay:
    """See `ReplayBuffer`; and the pieces of a fused training step.

    Args:
        exponent: α.
        transfer_steps: steps that are collected on the host before they go over.
        seed: of the sequences that a fused step draws.
    """

    def __init__(
        self,
        backend: Backend,
        spec: SequenceSpec,
        capacity: int,
        exponent: float,
        transfer_steps: int,
        seed: int = 0,
    ) -> None:
        self.spec = spec
        self.capacity = capacity
        self.inserted = self.stale_updates = 0
        self._rows = device_tables(spec, capacity)
        self.tables = backend.tables(self._rows)
        self.ring = Ring(capacity, spec.predecessors)
        self._backend = backend
        self._exponent = exponent
        self._seed = seed
        self._began = time.time()
        self._update_sequences = max(1, transfer_steps // spec.steps)
        self._staged: list[SequenceChunk] = []
        self._staged_count = 0
        self._add = self.tables.compile(self._add_function)
        self._sample = self.tables.compile(self._sample_function)
        self._set = self.tables.compile(self._set_function)

    # --- on the host ------------------------------------------------------------------------

    def can_insert(self) -> bool:
        """See `ReplayBuffer`. Always: the oldest sequences give way."""
        return True

    def add(self, chunk: SequenceChunk) -> None:
        """See `ReplayBuffer`. Kept on the host until there are `transfer_steps` steps."""
        check_chunk(self.spec, chunk)
        if chunk.environments > self.capacity // 2:
            raise ValueError(
                f"a chunk of {chunk.environments} sequences does not fit into a replay of "
                f"{self.capacity}, half of which it may replace at a time"
            )
        self._staged.append(chunk)
        self._staged_count += chunk.environments
        if self._staged_count >= min(self._update_sequences, self.capacity // 2):
            self.flush()

    def flush(self) -> None:
        """Send what is staged, so that it can be drawn."""
        chunks, self._staged, self._staged_count = self._staged, [], 0
        if not chunks:
            return
        added = [self.ring.add(b.stream_id, b.chunk_index, b.environments) for b in chunks]
        keys = np.concatenate([one.keys for one in added])
        items = self.ring.item(keys)
        retired = np.setdiff1d(np.concatenate([one.invalidated for one in added]), items)
        # Few sizes, so that little is compiled. Each item that is taken retires one at most.
        size = _padded(len(items), self._update_sequences)
        previous = self.ring.previous[items]
        rows: dict[str, NDArray[Any]] = {
            name: _pad(np.concatenate([getattr(b, name).swapaxes(0, 1) for b in chunks]), size)
            for name in _TIMED
        }
        rows |= {
            name: _pad(np.concatenate([getattr(b, name) for b in chunks]), size) for name in _PLAIN
        }
        counts = [b.environments for b in chunks]
        rows["version"] = _pad(np.repeat([b.version for b in chunks], counts), size, np.float32)
        rows["time"] = np.full(size, time.time() - self._began, np.float32)
        rows["previous"] = _pad(
            np.where(previous >= 0, self.ring.item(previous), self.capacity), size, np.int32
        )
        priority = np.concatenate([b.priority for b in chunks])
        whole = self.ring.is_sampleable[items]
        # 0 to the power of 0 is 1: what is not whole needs a weight of its own.
        self._add(
            _pad(items, size, np.int32, self.capacity),
            rows,
            _pad(priority, size, np.float32),
            _pad(whole, size, np.float32),
            _pad(retired, size, np.int32, self.capacity),
        )
        self.inserted += len(items)

    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        """See `ReplayBuffer`. Copies to the host: for tests, and to look at."""
        if not self.ring.sampleable:
            raise ValueError(
                f"nothing can be drawn: {self.ring.size} of {self.capacity} items are in use, and "
                f"{self._staged_count} more are waiting for learner.replay.transfer_steps"
            )
        # The upper 24 bits choose among the sums, those below among a sum's items.
        upper = np.floor(uniform * 2**24)
        pair = np.stack([upper / 2**24, uniform * 2**24 - upper], -1).astype(np.float32)
        batch = self._sample(np.minimum(pair, np.float32(1 - 2**-24)))
        host = {name: np.array(self._backend.to_host(value)) for name, value in batch.items()}
        future: Future[Sample] = Future()
        future.set_result(
            Sample(
                keys=self.ring.key[host["items"]],
                probability=host["probability"].astype(np.float64),
                arrays={name: host[name] for name in ("observation", *_TIMED[1:], *_PLAIN)},
                version=host["version"].astype(np.float64),
                age_s=self.age_s(host["time"]),
            )
        )
        return future

    def draw_items(self, uniform: NDArray[np.float32]) -> Any:
        """Draw a batch for numbers [B, 2] and leave it on the device; its items [B], there too."""
        return self._sample(uniform)["items"]

    def age_s(self, inserted: NDArray[np.float32]) -> NDArray[np.float64]:
        """Seconds since the times [B] of the table `time`."""
        age: NDArray[np.float64] = np.maximum(time.time() - self._began - inserted, 0.0)
        return age.astype(np.float64)

    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """See `ReplayBuffer`."""
        keys, priority = check_priorities(keys, priority)
        items = self.ring.item(keys)
        there = self.ring.contains(keys) & self.ring.is_sampleable[items]
        self.stale_updates += int(np.count_nonzero(~there))
        # Late ones go to the spare item, whose weight stays 0.
        self._set(
            np.where(there, items, self.capacity).astype(np.int32),
            priority,
            there.astype(np.float32),
        )

    def stats(self) -> ReplayStats:
        """See `ReplayBuffer`."""
        return ReplayStats(
            capacity=self.capacity,
            size=self.ring.size,
            sampleable=self.ring.sampleable,
            bytes=device_bytes(self.spec, self.capacity),
            inserted=self.inserted,
            stale_updates=self.stale_updates,
        )

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """A copy of everything that is on the device."""
        keys = {"key": self.ring.key.copy(), "previous_key": self.ring.previous.copy()}
        return {**self.tables.read(), **keys}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take a snapshot back. Streams go on as new chains; what was staged is dropped.

        Raises:
            ValueError: it is of another home, with the name and both shapes.
        """
        for name, (rows, array) in self._rows.items():
            given, shape = state.get(name), (rows, *array.shape)
            if given is None or (given.shape, str(given.dtype)) != (shape, array.dtype):
                found = None if given is None else f"{given.dtype}{list(given.shape)}"
                raise ValueError(
                    f"{name} of the state is {found}, and of this replay {array.dtype}{list(shape)}"
                )
        self._staged, self._staged_count = [], 0
        self.ring.restore(state["key"], state["previous_key"])
        self.tables.write(state)

    def close(self) -> None:
        """See `ReplayBuffer`."""

    # --- on the device ----------------------------------------------------------------------

    def _add_function(
        self,
        tables: Tables,
        items: Tensor,
        rows: Rows,
        priority: Tensor,
        whole: Tensor,
        retired: Tensor,
    ) -> None:
        for name, values in rows.items():
            if self._rows[name][1].row_bytes:
                tables.put(name, items, values)
        tables.put("weight", retired, ops.zeros(retired.shape, "float32"))
        tables.put("weight", items, self._weight(priority) * whole)
        self._sum(tables, retired)
        self._sum(tables, items)

    def _set_function(self, tables: Tables, items: Tensor, priority: Tensor, there: Tensor) -> None:
        tables.put("weight", items, self._weight(priority) * there)
        self._sum(tables, items)

    def _weight(self, priority: Tensor) -> Tensor:
        """p^α, kept where float32 can add up a replay of them: what can be drawn has some."""
        weight = ops.clip(ops.power(priority, self._exponent), 1e-30, 1e30)
        return weight if self._exponent == 0 else ops.where(priority > 0, weight, 0.0)

    def _sum(self, tables: Tables, items: Tensor) -> None:
        """Add up the weights of the groups that items [N] are in."""
        groups = items // WIDTH
        tables.put("mass", groups, ops.sum(self._weights(tables, groups), axis=-1))

    def _weights(self, tables: Tables, groups: Tensor) -> Tensor:
        """The weights [N, WIDTH] of groups [N]."""
        members = ops.expand_dims(groups * WIDTH, -1) + ops.arange(WIDTH, dtype="int32")
        return tables.take("weight", members)

    def _sample_function(self, tables: Tables, uniform: Tensor) -> Rows:
        """A batch of sequences, for numbers [B, 2] uniform in [0, 1)."""
        mass = tables.take("mass", ops.arange(self._rows["mass"][0]))
        group = _choose_of(mass, uniform[:, 0])
        weights = self._weights(tables, group)
        items = group * WIDTH + _choose(weights, uniform[:, 1])
        batch = {
            name: ops.swapaxes(tables.take(name, items), 0, 1)
            for name in ("flags", "reward", "action")
        }
        batch |= {name: tables.take(name, items) for name in (*_PLAIN, "version", "time")}
        batch["observation"] = self._frames(tables, items)
        batch["probability"] = tables.take("weight", items) / ops.sum(mass)
        batch["items"] = items
        return batch

    def _frames(self, tables: Tables, items: Tensor) -> Tensor:
        """The frames [F, B, *shape] of items [B], from their own rows and those before."""
        spec = self.spec
        parts, left = [], spec.frames
        for hop in range(spec.predecessors + 1):
            if hop:
                items = tables.take("previous", items)
            rows = min(spec.steps, left)
            parts.append(tables.take("frames", items)[:, spec.steps - rows :])
            left -= rows
        frames = ops.concatenate(parts[::-1], axis=1) if len(parts) > 1 else parts[0]
        return ops.swapaxes(frames, 0, 1)

    def draw(self, tables: Tables, batch_size: int) -> Rows:
        """A batch of a fused step; its random numbers are made on the device."""
        counter = tables.take("draws", ops.zeros((1,), "int32"))
        tables.put("draws", ops.zeros((1,), "int32"), counter + 1)
        return self._sample_function(
            tables, self._backend.uniform(self._seed, counter, (batch_size, 2))
        )

    def settle(self, tables: Tables, batch: Rows, outputs: dict[str, Tensor]) -> None:
        """The new priorities of a fused step's batch."""
        items = batch["items"]
        self._set_function(tables, items, outputs.pop("priority"), ops.ones(items.shape, "float32"))
        outputs["version"], outputs["time"] = batch["version"], batch["time"]


def _choose_of(weights: Tensor, uniform: Tensor) -> Tensor:
    """Indices [B] int32, each with probability weight / sum, of weights [N] that all share.

    One of weight 0 is never chosen, whatever rounding does to the sums: it would be a group of
    sequences whose frames are gone.
    """
    cumulative = ops.cumsum(weights)
    chosen = ops.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    last = _last(weights > 0)
    chosen = ops.minimum(ops.cast(chosen, "int32"), last)
    return ops.where(ops.take(weights, chosen) > 0, chosen, last)


def _choose(weights: Tensor, uniform: Tensor) -> Tensor:
    """Columns [B] int32 of weights [B, N], one of each row; otherwise as `_choose_of`."""
    cumulative = ops.cumsum(weights, axis=-1)
    point = ops.expand_dims(uniform, -1) * cumulative[:, -1:]
    real = weights > 0
    beyond = ops.logical_and(cumulative > point, real)
    first = ops.argmax(ops.cast(beyond, "int32"), axis=-1)
    return ops.where(ops.any(beyond, axis=-1), ops.cast(first, "int32"), _last(real))


def _last(real: Tensor) -> Tensor:
    """Where the last true value of [..., N] bool is, [...] int32."""
    back = ops.argmax(ops.cast(ops.flip(real, axis=-1), "int32"), axis=-1)
    return ops.cast(real.shape[-1] - 1 - back, "int32")


def _padded(count: int, usual: int) -> int:
    """`count`, or a little more: a multiple of an eighth of the usual."""
    step = max(1, usual // 8)
    return max(step, -(-count // step) * step)


def _pad(array: NDArray[Any], size: int, dtype: Any = None, fill: Any = 0) -> NDArray[Any]:
    """[N, ...] with rows of `fill` up to `size`."""
    padded = np.full((size, *array.shape[1:]), fill, dtype or array.dtype)
    padded[: len(array)] = array
    return padded
