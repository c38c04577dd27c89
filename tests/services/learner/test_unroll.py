"""Unrolls against a slow reference: the whole history of a session, cut by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from seedbed.services.learner.unrolls.unroll import SessionUnroll, UnrollSpec, UnrollWriter
from seedbed.spec import FIRST, TERMINATED, ArraySpec

ENVIRONMENTS = 3


def make_spec(unroll_length: int, frame_stack: int, state_size: int) -> UnrollSpec:
    return UnrollSpec(
        observation=ArraySpec((2, 3), "uint8"),
        unroll_length=unroll_length,
        frame_stack=frame_stack,
        state_size=state_size,
        behaviour={"logits": ArraySpec((4,), "float32"), "value": ArraySpec((), "float32")},
    )


@dataclass
class History:
    """Every row that a session ever had, in lists."""

    observation: list[Any] = field(default_factory=list)
    flags: list[Any] = field(default_factory=list)
    reward: list[Any] = field(default_factory=list)
    action: list[Any] = field(default_factory=list)
    logits: list[Any] = field(default_factory=list)
    value: list[Any] = field(default_factory=list)
    state: list[Any] = field(default_factory=list)


def play(spec: UnrollSpec, rows: int) -> tuple[History, list[SessionUnroll], UnrollWriter]:
    """Random rows through a writer. Blocks are as they were handed on."""
    random = np.random.default_rng(spec.unroll_length * 100 + spec.frame_stack)
    writer, history, blocks = UnrollWriter(spec, ENVIRONMENTS), History(), []
    e = ENVIRONMENTS
    for row in range(rows):
        observation = random.integers(1, 256, (e, 2, 3)).astype(np.uint8)
        reward = random.normal(size=e).astype(np.float32)
        first = random.random(e) < 0.3 if row else np.ones(e, bool)
        flags = np.where(first, FIRST, TERMINATED * (random.random(e) < 0.3)).astype(np.uint8)
        block = writer.add_step(observation, reward, flags)
        if block is not None:
            blocks.append(block)
        slots = np.arange(e, dtype=np.int32)
        expected = history.action[-1] if row else np.full(e, -1)
        inputs = (slots, observation, flags, reward, expected, None)
        for ours, wanted in zip(writer.inputs(slots), inputs, strict=True):
            np.testing.assert_array_equal(ours, wanted)

        action = random.integers(0, 4, e).astype(np.int32)
        logits = random.normal(size=(e, 4)).astype(np.float32)
        value = random.normal(size=e).astype(np.float32)
        state = random.normal(size=(e, spec.state_size)).astype(np.float32)
        starts_block = row % spec.unroll_length == 0
        assert writer.needs_state == (starts_block and spec.state_size > 0)
        writer.set_outputs(
            action, {"logits": logits, "value": value}, row, state if writer.needs_state else None
        )
        for name, values in (("observation", observation), ("flags", flags), ("reward", reward),
                             ("action", action), ("logits", logits), ("value", value),
                             ("state", state)):  # fmt: skip
            getattr(history, name).append(values.copy())
    return history, blocks, writer


@pytest.mark.parametrize(("unroll_length", "frame_stack"), [(1, 1), (5, 1), (5, 4), (2, 4)])
@pytest.mark.parametrize("state_size", [0, 3])
def test_blocks_are_slices_of_the_history(
    unroll_length: int, frame_stack: int, state_size: int
) -> None:
    spec = make_spec(unroll_length, frame_stack, state_size)
    rows = 4 * unroll_length + 1
    history, blocks, _ = play(spec, rows)
    assert len(blocks) == 4
    context = frame_stack - 1
    # Before the session there was nothing: frames of zeros, without flags.
    nothing = [np.zeros((ENVIRONMENTS, 2, 3), np.uint8)] * context
    frames = np.stack(nothing + history.observation)
    flags = np.stack([np.zeros(ENVIRONMENTS, np.uint8)] * context + history.flags)
    for number, block in enumerate(blocks):
        start = number * unroll_length  # row T is row 0 of the next block
        stop = start + unroll_length
        np.testing.assert_array_equal(block.observation, frames[start : stop + 1 + context])
        np.testing.assert_array_equal(block.flags, flags[start : stop + 1 + context])
        np.testing.assert_array_equal(block.reward, history.reward[start : stop + 1])
        np.testing.assert_array_equal(block.action, history.action[start:stop])
        np.testing.assert_array_equal(block.behaviour["logits"], history.logits[start:stop])
        np.testing.assert_array_equal(block.behaviour["value"], history.value[start:stop])
        np.testing.assert_array_equal(block.version, range(start, stop))
        np.testing.assert_array_equal(block.state, history.state[start])
        before = history.action[start - 1] if start else np.full(ENVIRONMENTS, -1)
        np.testing.assert_array_equal(block.previous_action, before)
        assert block.environments == ENVIRONMENTS


@pytest.mark.parametrize("rows", range(1, 14))
def test_every_step_is_in_one_block_or_pending(rows: int) -> None:
    history, blocks, writer = play(make_spec(5, 3, 0), rows)
    steps = sum(int((flags & FIRST == 0).sum()) for flags in history.flags)
    assert sum(block.steps for block in blocks) + writer.pending_steps == steps


def test_nothing_is_pending_before_the_first_row() -> None:
    assert UnrollWriter(make_spec(5, 3, 0), 2).pending_steps == 0


def test_no_memory_is_shared_between_blocks() -> None:
    """The device may hold a block while the next one is written."""
    _, blocks, writer = play(make_spec(2, 3, 2), 9)
    for block, after in zip(blocks, [*blocks[1:], writer._unroll], strict=True):
        for name in ("observation", "flags", "reward", "action", "state", "version"):
            assert not np.shares_memory(getattr(block, name), getattr(after, name))


def test_bytes_per_environment_is_what_a_column_takes() -> None:
    spec = make_spec(5, 4, 3)
    _, (block, *_), _ = play(spec, 6)
    arrays = [block.observation, block.flags, block.reward, block.action, block.previous_action,
              block.state, *block.behaviour.values()]  # fmt: skip
    assert spec.bytes_per_environment() * ENVIRONMENTS == sum(array.nbytes for array in arrays)
