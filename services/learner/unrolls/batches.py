"""Training batches of B unrolls, put together from sessions of any number of environments."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.services.learner.unrolls.unroll import SessionUnroll
from seedbed.spec import BATCH_FIRST, FIRST


@dataclass
class TrainingBatch:
    """B unrolls or sequences, time-major.

    Attributes:
        arrays: the batch on the host, with the names of `unroll_of`. Empty if it was drawn on
            the device.
        version: mean version of the parameters that acted in each unroll, `[B]`.
        steps: real transitions, of T * B.
        keys: keys of sequences from replay, `[B]`; None without replay.
        on_device: `arrays` on the device, once they are there.
        step_version: mean version of the parameters that acted at each step, `[T]`; None where the
            batch comes from replay.
    """

    arrays: dict[str, NDArray[Any]]
    version: NDArray[np.float64]
    steps: int
    keys: NDArray[np.int64] | None = None
    on_device: Any = None
    step_version: NDArray[np.float64] | None = None

    def minibatch(self, columns: NDArray[np.int64]) -> "TrainingBatch":
        """Return a batch of some of the unrolls, on the host.

        Args:
            columns: `[b]`, their numbers.
        """
        arrays = {
            name: array[columns] if name in BATCH_FIRST else np.take(array, columns, axis=1)
            for name, array in self.arrays.items()
        }
        return TrainingBatch(
            arrays=arrays,
            version=self.version[columns],
            steps=real_steps(arrays),
            step_version=self.step_version,
        )


def real_steps(arrays: dict[str, NDArray[Any]]) -> int:
    """Return the transitions of a batch that are no step from one episode to the next.

    Args:
        arrays: `action` [T, B, ...] and `flags` [T + 1 or more, B].
    """
    steps = arrays["action"].shape[0]
    return int(np.count_nonzero((arrays["flags"][-steps:] & FIRST) == 0))


class BatchBuilder:
    """Collects unrolls until a batch is full.

    The arrays of a session unroll that is exactly one batch are passed on without a copy.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        # A session unroll, and the first and last (exclusive) of its environments.
        self._parts: list[tuple[SessionUnroll, int, int]] = []
        self._unrolls = 0

    @property
    def pending_steps(self) -> int:
        """Steps that wait for a batch to fill up."""
        flags = [unroll.flags[-len(unroll.action) :, i:j] for unroll, i, j in self._parts]
        return sum(int(np.count_nonzero((part & FIRST) == 0)) for part in flags)

    def add(self, unroll: SessionUnroll) -> list[TrainingBatch]:
        """Add a session's unroll, and return the batches that it completes."""
        done: list[TrainingBatch] = []
        start = 0
        while start < unroll.environments:
            stop = min(unroll.environments, start + self._batch_size - self._unrolls)
            self._parts.append((unroll, start, stop))
            self._unrolls += stop - start
            start = stop
            if self._unrolls == self._batch_size:
                done.append(self._join())
                self._parts, self._unrolls = [], 0
        return done

    def _join(self) -> TrainingBatch:
        parts = self._parts

        def join(arrays: list[NDArray[Any]], axis: int) -> NDArray[Any]:
            if len(arrays) == 1:
                return np.ascontiguousarray(arrays[0])
            return np.concatenate(arrays, axis)

        arrays = {
            name: join([getattr(u, name)[:, i:j] for u, i, j in parts], 1)
            for name in ("observation", "flags", "reward", "action")
        }
        for name in ("previous_action", "state"):
            arrays[name] = join([getattr(u, name)[i:j] for u, i, j in parts], 0)
        for name in parts[0][0].behaviour:
            arrays[f"behaviour/{name}"] = join([u.behaviour[name][:, i:j] for u, i, j in parts], 1)
        return TrainingBatch(
            arrays=arrays,
            version=np.concatenate([np.full(j - i, u.version.mean()) for u, i, j in parts]),
            steps=real_steps(arrays),
            step_version=np.sum([(j - i) * u.version for u, i, j in parts], 0) / self._batch_size,
        )
