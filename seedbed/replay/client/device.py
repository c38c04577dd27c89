"""Replay on the accelerator ("Deep In-GPU Experience Replay", section 4).

Sequences, priorities and sampling are tables on the device (`device_tables`). The host decides
which item each sequence takes, because the keys alone say so (`Ring`). Frames are copied to the
device once, `transfer_steps` steps at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.backends.protocol import Backend, Tables, TensorDict
from seedbed.replay.buffer import check_chunk, check_priorities, check_state
from seedbed.replay.client import device_tables
from seedbed.replay.client.replay_buffer import ReplayBuffer, ReplayStats
from seedbed.replay.ring import Ring
from seedbed.replay.sequence import TIMED, UNTIMED, Sample, SequenceChunk, SequenceSpec
from seedbed.types import Tensor


class DeviceReplay(ReplayBuffer):
    """Replay in the memory of the device, and its part of a fused training step.

    Args:
        backend: Backend of the device.
        spec: Sizes of a sequence.
        capacity: Sequences.
        exponent: α, not negative.
        transfer_steps: Steps that are collected on the host before they are copied.
        seed: Seed of the samples of a fused step.

    Attributes:
        tables: The tables of `device_tables.table_specs`.
        ring: Which item holds which sequence.
        inserted: Sequences that were copied to the device.
        stale_updates: Priorities that came for sequences already replaced.
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
        self._table_specs = device_tables.table_specs(spec, capacity)
        self.tables = backend.tables(self._table_specs)
        self.ring = Ring(capacity, spec.predecessors)
        self._backend = backend
        self._seed = seed
        self._began = time.time()
        # Chunks are copied once they have so many sequences.
        self._transfer_sequences = max(1, transfer_steps // spec.steps)
        self._staged: list[SequenceChunk] = []
        self._staged_sequences = 0
        self._update_function = partial(device_tables.update, exponent=exponent)
        self._sample_function = partial(device_tables.sample, spec=spec, capacity=capacity)
        self._add = self.tables.compile(partial(device_tables.add, spec=spec, exponent=exponent))
        self._sample = self.tables.compile(self._sample_function)
        self._update = self.tables.compile(self._update_function)

    @override
    def add(self, chunk: SequenceChunk) -> None:
        # Staged on the host until there are `transfer_steps` steps.
        check_chunk(self.spec, chunk)
        if chunk.environments > self.capacity // 2:
            raise ValueError(
                f"a chunk of {chunk.environments} sequences does not fit into a replay of "
                f"{self.capacity}, half of which it may replace at a time"
            )
        self._staged.append(chunk)
        self._staged_sequences += chunk.environments
        if self._staged_sequences >= min(self._transfer_sequences, self.capacity // 2):
            self.flush()

    def flush(self) -> None:
        """Copy the staged chunks to the device, so that they can be sampled."""
        chunks, self._staged, self._staged_sequences = self._staged, [], 0
        if not chunks:
            return
        ring = self.ring
        added = [ring.add(one.stream_id, one.chunk_index, one.environments) for one in chunks]
        keys = np.concatenate([one.keys for one in added])
        items = ring.item(keys)
        invalidated = np.setdiff1d(np.concatenate([one.invalidated for one in added]), items)
        # Few sizes, so that little is compiled. Each item that is taken invalidates at most one.
        size = _padded_size(len(items), self._transfer_sequences)
        # Join the arrays of the chunks, [N, ...].
        rows: dict[str, NDArray[Any]] = {
            name: _pad(np.concatenate([getattr(c, name).swapaxes(0, 1) for c in chunks]), size)
            for name in TIMED
        }
        for name in UNTIMED:
            rows[name] = _pad(np.concatenate([getattr(c, name) for c in chunks]), size)
        counts = [c.environments for c in chunks]
        rows["version"] = _pad(np.repeat([c.version for c in chunks], counts), size, np.float32)
        rows["time"] = np.full(size, time.time() - self._began, np.float32)
        previous = ring.previous[items]
        previous_items = np.where(previous >= 0, ring.item(previous), self.capacity)
        rows["previous"] = _pad(previous_items, size, np.int32)
        self._add(
            _pad(items, size, np.int32, self.capacity),
            rows,
            _pad(np.concatenate([c.priority for c in chunks]), size, np.float32),
            _pad(ring.is_sampleable[items], size, np.float32),
            _pad(invalidated, size, np.int32, self.capacity),
        )
        self.inserted += len(items)

    @override
    def request_sample(self, uniform: NDArray[np.float64]) -> Future[Sample]:
        # Copies the batch to the host, for tests and inspection.
        if not self.ring.sampleable:
            raise ValueError(
                f"nothing can be drawn: {self.ring.size} of {self.capacity} items are in use, and "
                f"{self._staged_sequences} more are waiting for learner.replay.transfer_steps"
            )
        # The upper 24 bits choose the group, those below the item in the group.
        upper = np.floor(uniform * 2**24)
        pair = np.stack([upper / 2**24, uniform * 2**24 - upper], -1).astype(np.float32)
        batch = self._sample(np.minimum(pair, np.float32(1 - 2**-24)))
        host = {name: np.array(self._backend.to_host(value)) for name, value in batch.items()}
        future: Future[Sample] = Future()
        future.set_result(
            Sample(
                keys=self.ring.key[host["items"]],
                probability=host["probability"].astype(np.float64),
                arrays={name: host[name] for name in ("observation", *TIMED[1:], *UNTIMED)},
                version=host["version"].astype(np.float64),
                age_s=self.age_s(host["time"]),
            )
        )
        return future

    def draw_items(self, uniform: NDArray[np.float32]) -> Tensor:
        """Draw a batch and leave it on the device; return its items [B] there.

        Args:
            uniform: [B, 2] numbers in [0, 1).
        """
        return self._sample(uniform)["items"]

    def age_s(self, inserted: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the age [B] of sequences in seconds.

        Args:
            inserted: [B], rows of the table `time`.
        """
        age: NDArray[np.float64] = np.maximum(time.time() - self._began - inserted, 0.0)
        return age.astype(np.float64)

    @override
    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        keys, priority = check_priorities(keys, priority)
        items = self.ring.item(keys)
        valid = self.ring.contains(keys) & self.ring.is_sampleable[items]
        self.stale_updates += int(np.count_nonzero(~valid))
        # Late priorities go to the spare item, whose scaled priority stays 0.
        items = np.where(valid, items, self.capacity).astype(np.int32)
        self._update(items, priority, valid.astype(np.float32))

    @override
    def stats(self) -> ReplayStats:
        return ReplayStats(
            capacity=self.capacity,
            size=self.ring.size,
            sampleable=self.ring.sampleable,
            bytes=device_tables.device_bytes(self.spec, self.capacity),
            inserted=self.inserted,
            stale_updates=self.stale_updates,
        )

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """Return a copy of everything that is on the device, for `restore`."""
        keys = {"key": self.ring.key.copy(), "previous_key": self.ring.previous.copy()}
        return {**self.tables.read(), **keys}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a snapshot. Streams begin anew, and staged chunks are dropped.

        Args:
            state: Output of `snapshot`.

        Raises:
            ValueError: The snapshot is of another replay; nothing has changed.
        """
        specs = self._table_specs.items()
        check_state(state, {name: ((rows, *one.shape), one.dtype) for name, (rows, one) in specs})
        self._staged, self._staged_sequences = [], 0
        self.ring.restore(state["key"], state["previous_key"])
        self.tables.write(state)

    # --- parts of a fused training step ------------------------------------------------------

    def draw(self, tables: Tables, batch_size: int) -> TensorDict:
        """Draw the batch of a fused step, with random numbers made on the device.

        Args:
            tables: The tables, within the compiled step.
            batch_size: Sequences.
        """
        counter = tables.take("draws", ops.zeros((1,), "int32"))
        tables.put("draws", ops.zeros((1,), "int32"), counter + 1)
        uniform = self._backend.uniform(self._seed, counter, (batch_size, 2))
        return self._sample_function(tables, uniform)

    def set_priorities(self, tables: Tables, batch: TensorDict, outputs: dict[str, Tensor]) -> None:
        """Set the new priorities of a fused step's batch.

        Args:
            tables: The tables, within the compiled step.
            batch: Output of `draw`.
            outputs: Outputs of the loss. Loses `priority`, gets `version` and `time`.
        """
        items = batch["items"]
        priority = outputs.pop("priority")
        self._update_function(tables, items, priority, ops.ones(items.shape, "float32"))
        outputs["version"], outputs["time"] = batch["version"], batch["time"]


def _padded_size(count: int, usual: int) -> int:
    """Round `count` up to a multiple of an eighth of the usual."""
    step = max(1, usual // 8)
    return max(step, -(-count // step) * step)


def _pad(array: NDArray[Any], size: int, dtype: Any = None, fill: Any = 0) -> NDArray[Any]:
    """Extend [N, ...] to [size, ...] with rows of `fill`."""
    padded = np.full((size, *array.shape[1:]), fill, dtype or array.dtype)
    padded[: len(array)] = array
    return padded
