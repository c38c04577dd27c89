"""Training batches from blocks of any number of environments, against joining all columns."""

from __future__ import annotations

import numpy as np
import pytest

from seedbed.services.learner.unrolls.batches import BatchBuilder, TrainingBatch
from seedbed.services.learner.unrolls.unroll import SessionUnroll
from seedbed.spec import FIRST

STEPS, CONTEXT = 4, 2


def make_block(random: np.random.Generator, environments: int) -> SessionUnroll:
    rows, e = STEPS + 1, environments
    return SessionUnroll(
        observation=random.integers(0, 256, (CONTEXT + rows, e, 3)).astype(np.uint8),
        flags=(FIRST * (random.random((CONTEXT + rows, e)) < 0.4)).astype(np.uint8),
        reward=random.normal(size=(rows, e)).astype(np.float32),
        action=random.integers(0, 5, (STEPS, e)).astype(np.int32),
        previous_action=random.integers(-1, 5, e).astype(np.int32),
        behaviour={"logits": random.normal(size=(STEPS, e, 5)).astype(np.float32)},
        version=random.integers(0, 9, STEPS),
        state=random.normal(size=(e, 6)).astype(np.float32),
    )


def columns(blocks: list[SessionUnroll]) -> dict[str, np.ndarray]:
    """All blocks side by side."""
    time_major = ("observation", "flags", "reward", "action")
    joined = {name: np.concatenate([getattr(b, name) for b in blocks], 1) for name in time_major}
    joined |= {
        name: np.concatenate([getattr(b, name) for b in blocks])
        for name in ("previous_action", "state")
    }
    joined["behaviour/logits"] = np.concatenate([b.behaviour["logits"] for b in blocks], 1)
    return joined


PER_COLUMN = ("previous_action", "state")


@pytest.mark.parametrize(
    "sizes", [[6, 6], [1] * 13, [4, 1, 5, 2, 8, 3], [20], [3, 17, 1], [7, 7, 7, 7, 7]]
)
def test_columns_keep_their_order_and_their_numbers(sizes: list[int]) -> None:
    random = np.random.default_rng(1)
    builder, blocks = BatchBuilder(6), [make_block(random, size) for size in sizes]
    batches: list[TrainingBatch] = []
    for block in blocks:
        batches += builder.add(block)
    assert len(batches) == sum(sizes) // 6
    expected = columns(blocks)
    versions = np.concatenate([np.full(b.environments, b.version.mean()) for b in blocks])
    by_step = np.concatenate([np.stack([b.version] * b.environments, 1) for b in blocks], 1)
    for number, batch in enumerate(batches):
        part = slice(6 * number, 6 * number + 6)
        assert batch.arrays.keys() == expected.keys()
        for name, values in batch.arrays.items():
            want = expected[name][part] if name in PER_COLUMN else expected[name][:, part]
            np.testing.assert_array_equal(values, want, err_msg=name)
            assert values.dtype == want.dtype
        np.testing.assert_array_equal(batch.version, versions[part])
        np.testing.assert_allclose(batch.step_version, by_step[:, part].mean(1))


@pytest.mark.parametrize("sizes", [[6], [4, 1, 5, 2, 8, 3], [20], [5]])
def test_steps_are_in_a_batch_or_pending(sizes: list[int]) -> None:
    random = np.random.default_rng(2)
    builder, blocks = BatchBuilder(6), [make_block(random, size) for size in sizes]
    batches = [batch for block in blocks for batch in builder.add(block)]
    in_batches = sum(batch.steps for batch in batches)
    assert in_batches + builder.pending_steps == sum(block.steps for block in blocks)
    assert in_batches > 0 or sum(sizes) < 6


def test_a_block_that_is_a_batch_is_not_copied() -> None:
    block = make_block(np.random.default_rng(3), 6)
    (batch,) = BatchBuilder(6).add(block)
    for name in ("observation", "reward", "action", "state"):
        assert np.shares_memory(batch.arrays[name], getattr(block, name))


def test_arrays_are_contiguous() -> None:
    """A backend may look at their memory as it is."""
    random = np.random.default_rng(4)
    builder = BatchBuilder(6)
    for size in (20, 4, 3, 3):
        for batch in builder.add(make_block(random, size)):
            assert all(array.flags.c_contiguous for array in batch.arrays.values())


def test_a_minibatch_is_its_columns_of_every_array() -> None:
    random = np.random.default_rng(5)
    (batch,) = BatchBuilder(6).add(make_block(random, 6))
    columns = np.array([4, 0, 3])
    part = batch.minibatch(columns)
    assert set(part.arrays) == set(batch.arrays)
    for name, array in batch.arrays.items():
        axis = 0 if name in ("state", "previous_action") else 1
        picked = [np.take(array, column, axis) for column in columns]
        np.testing.assert_array_equal(part.arrays[name], np.stack(picked, axis), err_msg=name)
    np.testing.assert_array_equal(part.version, batch.version[columns])
    rest = batch.minibatch(np.array([1, 2, 5]))
    assert part.steps + rest.steps == batch.steps
