"""Training batches of B columns, put together from blocks of any number of environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.services.learner.unrolls.unroll import SessionUnroll
from seedbed.spec import FIRST


@dataclass
class TrainingBatch:
    """B columns, time-major, on the host. Array names are those of `training.train_function`."""

    arrays: dict[str, NDArray[Any]]
    version: NDArray[np.float64]  # [B], mean parameter version that acted in the column
    steps: int  # real transitions, of T * B
    keys: NDArray[np.int64] | None = None  # [B], of sequences from replay, for their priorities


class BatchBuilder:
    """Collects columns until a batch is full.

    When a block is exactly one batch its arrays are passed on as they are, without a copy.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._parts: list[tuple[SessionUnroll, int, int]] = []  # block, first and last column
        self._columns = 0

    @property
    def pending_steps(self) -> int:
        """Steps that wait for a batch to fill up (whole blocks are counted whole)."""
        return sum(
            int(np.count_nonzero((_flags(b)[1:, i:j] & FIRST) == 0)) for b, i, j in self._parts
        )

    def add(self, block: SessionUnroll) -> list[TrainingBatch]:
        """Add a block; return the batches that it completes."""
        done: list[TrainingBatch] = []
        start = 0
        while start < block.environments:
            stop = min(block.environments, start + self._batch_size - self._columns)
            self._parts.append((block, start, stop))
            self._columns += stop - start
            start = stop
            if self._columns == self._batch_size:
                done.append(self._join())
                self._parts, self._columns = [], 0
        return done

    def _join(self) -> TrainingBatch:
        parts = self._parts

        def join(arrays: list[NDArray[Any]], axis: int) -> NDArray[Any]:
            if len(arrays) == 1:
                return np.ascontiguousarray(arrays[0])
            return np.concatenate(arrays, axis)

        arrays = {
            "observation": join([b.observation[:, i:j] for b, i, j in parts], 1),
            "flags": join([b.flags[:, i:j] for b, i, j in parts], 1),
            "reward": join([b.reward[:, i:j] for b, i, j in parts], 1),
            "action": join([b.action[:, i:j] for b, i, j in parts], 1),
            "previous_action": join([b.previous_action[i:j] for b, i, j in parts], 0),
            "state": join([b.state[i:j] for b, i, j in parts], 0),
        }
        for name in parts[0][0].behaviour:
            arrays[f"behaviour/{name}"] = join([b.behaviour[name][:, i:j] for b, i, j in parts], 1)
        rows = arrays["reward"].shape[0]
        return TrainingBatch(
            arrays=arrays,
            version=np.concatenate([np.full(j - i, b.version.mean()) for b, i, j in parts]),
            steps=int(np.count_nonzero((arrays["flags"][-rows + 1 :] & FIRST) == 0)),
        )


def _flags(block: SessionUnroll) -> NDArray[np.uint8]:
    """The flags [R, E] of a block without those of the stack's context."""
    return block.flags[-len(block.reward) :]
