"""Shared memory of a group: actions go in, time steps come out."""

import mmap
import os
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.calls import records_bytes
from seedbed.spec import EnvironmentSpec, TimeStep

_ALIGNMENT = 64  # a cache line


class Block:
    """Arrays of a group in anonymous shared memory, which every worker maps.

    The memory begins with the workers' calls (`map_records`).

    No two processes write the same rows, and a message over a worker's socket says that the rows
    are whole. The memory is of no file system, so that nothing is left in /dev/shm, which is small
    in containers; it counts as memory of the container.

    Args:
        descriptor: of `memfd_create`; not closed here.
        spec: spec of each environment.
        num_envs: E.
        workers: W.

    Attributes:
        action: [E, *action] of the action space.
        chosen: [E] bool, the environments that `restart` restarts.
    """

    def __init__(self, descriptor: int, spec: EnvironmentSpec, num_envs: int, workers: int) -> None:
        e = num_envs
        parts: list[tuple[tuple[int, ...], str]] = [
            ((e, *spec.observation.shape), spec.observation.dtype),
            ((e,), "float32"),
            *[((e,), "bool")] * 5,
            ((e, *spec.action.array.shape), spec.action.array.dtype),
        ]
        offsets, end = [], records_bytes(workers)
        for shape, dtype in parts:
            offsets.append(end)
            end += -(-prod(shape) * np.dtype(dtype).itemsize // _ALIGNMENT) * _ALIGNMENT
        # Every process of the group does so. It never makes the memory smaller, and fails here
        # rather than at a write.
        os.posix_fallocate(descriptor, 0, end)
        memory = mmap.mmap(descriptor, end)
        arrays = [
            np.ndarray(shape, dtype, memory, offset)
            for (shape, dtype), offset in zip(parts, offsets, strict=True)
        ]
        self._step = TimeStep(*arrays[:6])
        self.chosen: NDArray[np.bool_] = arrays[6]
        self.action: NDArray[Any] = arrays[7]

    def write(self, rows: slice, time_step: TimeStep) -> None:
        """Copy a time step into the rows of one worker."""
        for shared, array in zip(self._step, time_step, strict=True):
            shared[rows] = array

    def read(self) -> TimeStep:
        """Return a copy of the time step of the group."""
        return TimeStep._make(array.copy() for array in self._step)

    def read_into(self, rows: slice, time_step: TimeStep) -> None:
        """Copy the rows of one worker into a time step of the group."""
        for shared, array in zip(self._step, time_step, strict=True):
            array[rows] = shared[rows]
