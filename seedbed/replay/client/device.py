"""Replay on the accelerator ("Deep In-GPU Experience Replay", section 4).

Sequences, priorities and sampling are tables on the device (`device_tables`). The host decides
which item each sequence takes, because the keys alone say so (`Ring`). Sequences are copied to the
device once, `transfer_steps` steps at a time, but for frames that inference has left there.
"""

import time
from functools import partial
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.backends.tables import Tables, TensorDict
from seedbed.replay.buffer import check_chunk, check_priorities
from seedbed.replay.client import device_tables
from seedbed.replay.replay_buffer import ReplayStats
from seedbed.replay.ring import Ring
from seedbed.replay.sequence import TIMED, UNTIMED, SequenceChunk, SequenceSpec
from seedbed.spec import DeviceFrames
from seedbed.types import Tensor


class DeviceReplay:
    """Replay in the memory of the device, and its part of a fused training step.

    One thread calls it.

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
        draw_batch: Draws a batch and leaves it on the device: [B, 2] numbers in [0, 1) to the
            output of `device_tables.sample`.
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
        self.tables = backend.tables(device_tables.table_specs(spec, capacity))
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
        self._add = self.tables.compile(partial(device_tables.add, exponent=exponent))
        self._add_frames = self.tables.compile(device_tables.add_frames)
        self.draw_batch = self.tables.compile(self._sample_function)
        self._gather = self.tables.compile(partial(device_tables.gather, spec=spec))
        self._update = self.tables.compile(self._update_function)

    def add(self, chunk: SequenceChunk) -> None:
        """Stage a chunk on the host, until there are `transfer_steps` steps to copy.

        Raises:
            ValueError: The chunk does not fit; nothing has changed.
        """
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
        names: tuple[str, ...] = TIMED
        if any(isinstance(one.frames, DeviceFrames) for one in chunks):
            names = TIMED[1:]
            for chunk, one in zip(chunks, added, strict=True):
                self._add_frames(ring.item(one.keys).astype(np.int32), _rows(chunk.frames))
        items = ring.item(keys)
        invalidated = np.setdiff1d(np.concatenate([one.invalidated for one in added]), items)
        # Few sizes, so that little is compiled. Each item that is taken invalidates at most one.
        size = _padded_size(len(items), self._transfer_sequences)
        # Join the arrays of the chunks, [N, ...].
        rows: dict[str, NDArray[Any]] = {
            name: _pad(np.concatenate([getattr(c, name).swapaxes(0, 1) for c in chunks]), size)
            for name in names
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

    def age_s(self, inserted: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the age [B] of sequences in seconds.

        Args:
            inserted: [B], rows of the table `time`.
        """
        age: NDArray[np.float64] = np.maximum(time.time() - self._began - inserted, 0.0)
        return age.astype(np.float64)

    def update_priorities(self, keys: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """Set new priorities. Sequences that were replaced meanwhile are counted.

        Args:
            keys: [B].
            priority: [B], finite and not negative.

        Raises:
            ValueError: A priority is negative, NaN or infinite; nothing has changed.
        """
        keys, priority = check_priorities(keys, priority)
        valid = self.ring.accept_updates(keys)
        # Late priorities go to the spare item, whose scaled priority stays 0.
        items = np.where(valid, self.ring.item(keys), self.capacity).astype(np.int32)
        self._update(items, priority, valid.astype(np.float32))

    def read(self, items: Tensor) -> dict[str, NDArray[Any]]:
        """Return the arrays of sequences, time-major, on the host.

        Args:
            items: [B], on the device.
        """
        gathered = self._gather(items)
        return {name: np.asarray(gathered[name]) for name in ("observation", *TIMED[1:], *UNTIMED)}

    def stats(self) -> ReplayStats:
        """Return the statistics. Cheap."""
        return self.ring.stats(device_tables.device_bytes(self.spec, self.capacity))

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

    def skip_draws(self, count: int) -> None:
        """Go on after so many draws: each has random numbers of its own, by its number."""
        skip = self.tables.compile(device_tables.set_draws)
        skip(np.full(1, count, np.int32))

    def set_priorities(self, tables: Tables, batch: TensorDict, outputs: dict[str, Tensor]) -> None:
        """Set the new priorities of a fused step's batch.

        Args:
            tables: The tables, within the compiled step.
            batch: Output of `draw`.
            outputs: Outputs of the update. Loses `priority`, gets `version`, `time` and `items`.
        """
        items, priority = batch["items"], outputs.pop("priority")
        # With priority 0 the sequences of a skipped update are never drawn again.
        sound = ops.logical_and(ops.isfinite(outputs["gradient_norm"]), ops.isfinite(priority))
        priority = ops.where(sound, priority, 0.0)
        self._update_function(tables, items, priority, ops.cast(sound, "float32"))
        outputs |= {name: batch[name] for name in ("version", "time", "items")}


def _rows(frames: NDArray[Any] | DeviceFrames) -> Any:
    """Return the frames [E, T, *shape] of a chunk, where they are."""
    return frames.array if isinstance(frames, DeviceFrames) else frames.swapaxes(0, 1)


def _padded_size(count: int, usual: int) -> int:
    """Round `count` up to a multiple of an eighth of the usual."""
    step = max(1, usual // 8)
    return max(step, -(-count // step) * step)


def _pad(array: NDArray[Any], size: int, dtype: Any = None, fill: Any = 0) -> NDArray[Any]:
    """Extend [N, ...] to [size, ...] with rows of `fill`."""
    padded = np.full((size, *array.shape[1:]), fill, dtype or array.dtype)
    padded[: len(array)] = array
    return padded
