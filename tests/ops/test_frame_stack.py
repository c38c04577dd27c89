"""Frame stacks against plain loops over rows, environments and frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.ops.frame_stack import stack_step, stack_unroll, stacked_shape

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
SHAPES = [(4, 3), (4, 3, 2), (5,)]


def reference(frames: Array, first: Array, stack: int) -> Array:
    """Row r holds, oldest first, the frames of its episode among the newest `stack`."""
    rows = frames.shape[0] - (stack - 1)
    shape = frames.shape[2:]
    channels = (*shape, 1) if len(shape) == 2 else shape
    result = np.zeros((rows, frames.shape[1], *channels[:-1], channels[-1] * stack), frames.dtype)
    for r in range(rows):
        for b in range(frames.shape[1]):
            newest = r + stack - 1
            parts = []
            row, over = newest, False
            for _ in range(stack):
                frame = frames[row, b].reshape(channels)
                parts.append(np.zeros_like(frame) if over else frame)
                over = over or bool(first[row, b])
                row -= 1
            result[r, b] = np.concatenate(parts[::-1], axis=-1)
    return result


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stack", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_unroll_equals_loops(shape: tuple[int, ...], stack: int, dtype: str) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        frames = rng.integers(1, 255, (stack - 1 + 7, 5, *shape)).astype(dtype)
        first = rng.random(frames.shape[:2]) < (0.0, 0.2, 0.8)[seed % 3]
        got = ops.convert_to_numpy(
            stack_unroll(ops.convert_to_tensor(frames), ops.convert_to_tensor(first), stack)
        )
        assert got.shape[2:] == stacked_shape(shape, stack)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, reference(frames, first, stack))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("stack", [1, 2, 4])
def test_steps_equal_the_unroll(shape: tuple[int, ...], stack: int) -> None:
    """From an empty table, as a session begins: K-1 frames of zeros, then a `first` row."""
    rng = np.random.default_rng(7)
    rows, n = 9, 4
    new = rng.integers(1, 255, (rows, n, *shape)).astype(np.uint8)
    first = rng.random((rows, n)) < 0.3
    first[0] = True
    before = np.zeros((stack - 1, n, *shape), np.uint8)
    unroll = stack_unroll(
        ops.convert_to_tensor(np.concatenate([before, new])),
        ops.convert_to_tensor(np.concatenate([np.zeros((stack - 1, n), bool), first])),
        stack,
    )
    frames = ops.zeros((n, stack - 1, *shape), "uint8")
    for t in range(rows):
        stacked, frames = stack_step(
            frames, ops.convert_to_tensor(first[t]), ops.convert_to_tensor(new[t])
        )
        np.testing.assert_array_equal(
            ops.convert_to_numpy(stacked), ops.convert_to_numpy(unroll[t])
        )
        assert tuple(frames.shape) == (n, stack - 1, *shape)


def test_too_few_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        stack_unroll(ops.zeros((2, 1, 3)), ops.zeros((2, 1), "bool"), 4)
