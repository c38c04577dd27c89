"""Blocks for replay against a slow reference: the whole history of a session, cut by hand."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.agents.protocol import SequenceWindow
from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.services.learner.unrolls.sequences import SequencePlan, SequenceWriter
from seedbed.spec import FIRST, LIFE_LOST, TERMINATED, ArraySpec

E = 3
FRAME = ArraySpec((2, 3), "uint8")
BEHAVIOUR = {"chosen": ArraySpec((), "float32"), "best": ArraySpec((2,), "float32")}
SPECS = {
    "r2d2": SequenceSpec(FRAME, steps=8, burn_in=4, frame_stack=4, state_size=3),
    "no-burn-in": SequenceSpec(FRAME, steps=5, state_size=2),
    "no-state": SequenceSpec(FRAME, steps=5, burn_in=2, frame_stack=2),
    "burn-in-of-two-blocks": SequenceSpec(FRAME, steps=3, burn_in=7, state_size=2),
    "burn-in-fills-a-block": SequenceSpec(FRAME, steps=4, burn_in=3, state_size=2),
    "dqn": SequenceSpec(FRAME, steps=1),
    "dqn-n3-stack": SequenceSpec(FRAME, steps=1, lookahead=2, frame_stack=4),
    "all": SequenceSpec(FRAME, steps=3, burn_in=8, lookahead=2, frame_stack=3, state_size=1),
}
History = dict[str, list[Any]]


class Priorities:
    """An agent's `initial_priority`, which keeps what it was given."""

    def __init__(self) -> None:
        self.windows: list[SequenceWindow] = []

    def __call__(self, window: SequenceWindow) -> NDArray[np.float32]:
        self.windows.append(
            SequenceWindow(window.trained, *(np.array(x) for x in window[1:-1]),
                   {name: np.array(x) for name, x in window.behaviour.items()})
        )  # fmt: skip
        return np.arange(E, dtype=np.float32) + len(self.windows)


def play(
    spec: SequenceSpec, rows: int
) -> tuple[History, list[SequenceChunk], SequenceWriter, list[SequenceWindow]]:
    """Random rows through a writer."""
    random = np.random.default_rng(spec.steps * 100 + spec.burn_in)
    priorities = Priorities()
    writer = SequencePlan(spec, BEHAVIOUR, priorities).writer(E)
    history: History = defaultdict(list)
    blocks = []
    for row in range(rows):
        first = random.random(E) < 0.2 if row else np.ones(E, bool)
        new = {
            "observation": random.integers(1, 256, (E, 2, 3)).astype(np.uint8),
            "reward": random.normal(size=E).astype(np.float32),
            "flags": np.where(first, FIRST, random.choice([0, TERMINATED, LIFE_LOST, 2], E)).astype(
                np.uint8
            ),
        }
        block = writer.add_step(**new)
        if block is not None:
            blocks.append(block)
        slots = np.arange(E, dtype=np.int32)
        expected = history["action"][-1] if row else np.full(E, -1)
        inputs = (slots, new["observation"], new["flags"], new["reward"], expected, None)
        for ours, wanted in zip(writer.inputs(slots), inputs, strict=True):
            np.testing.assert_array_equal(ours, wanted)
        outputs = {
            "action": random.integers(0, 4, E).astype(np.int32),
            "chosen": random.normal(size=E).astype(np.float32),
            "best": random.normal(size=(E, 2)).astype(np.float32),
            "state": random.normal(size=(E, spec.state_size)).astype(np.float32),
        }
        # A sequence begins here if it ends, `rows` later, where a block does.
        begins = spec.state_size > 0 and (row + spec.timesteps) % spec.steps == 0
        assert writer.needs_state == begins
        for name, values in {**new, **outputs}.items():
            history[name].append(values.copy())
        behaviour = {name: outputs[name] for name in BEHAVIOUR}
        writer.set_outputs(outputs["action"], behaviour, row, outputs["state"] if begins else None)
        outputs["state"][:] = np.nan  # inference uses its memory again
    return history, blocks, writer, priorities.windows


def cut(history: History, name: str, start: int, stop: int) -> NDArray[Any]:
    """Rows start .. stop-1; before the session there was nothing."""
    rows = history[name]
    fill = -1 if name == "action" else 0
    lead = [np.full_like(rows[0], fill)] * max(0, -start)
    return np.stack(lead + rows[max(0, start) : stop])


@pytest.mark.parametrize("name", SPECS)
def test_blocks_are_slices_of_the_history(name: str) -> None:
    spec = SPECS[name]
    history, blocks, _, windows = play(spec, 9 * spec.steps + 1)
    assert len(blocks) == len(windows) == 9
    for number, (block, window) in enumerate(zip(blocks, windows, strict=True)):
        stop = (number + 1) * spec.steps
        start = stop - spec.timesteps  # row 0 of its sequences
        assert (block.chunk_index, block.stream_id) == (number, blocks[0].stream_id)
        np.testing.assert_array_equal(
            block.frames, cut(history, "observation", stop - spec.steps, stop)
        )
        np.testing.assert_array_equal(
            block.flags, cut(history, "flags", start - spec.frame_stack + 1, stop)
        )
        np.testing.assert_array_equal(block.reward, cut(history, "reward", start, stop))
        np.testing.assert_array_equal(block.action, cut(history, "action", start, stop - 1))
        np.testing.assert_array_equal(
            block.previous_action, cut(history, "action", start - 1, start)[0]
        )
        if start >= 0:
            np.testing.assert_array_equal(block.state, history["state"][start])
        assert block.version == pytest.approx(np.mean(range(stop - spec.steps, stop)))
        np.testing.assert_array_equal(block.priority, np.arange(E) + number + 1)
        # What the priority is computed from: the sequence's rows, the last one's outputs too.
        flags = cut(history, "flags", start, stop)
        assert window.trained == spec.steps
        for got, wanted in (
            (window.action, cut(history, "action", start, stop)),
            (window.reward, cut(history, "reward", start, stop)),
            (window.terminated, flags & TERMINATED != 0),
            (window.life_lost, flags & LIFE_LOST != 0),
            (window.first, flags & FIRST != 0),
            (window.behaviour["chosen"], cut(history, "chosen", start, stop)),
            (window.behaviour["best"], cut(history, "best", start, stop)),
        ):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", SPECS)
def test_a_replay_gives_the_rows_of_the_history(name: str) -> None:
    """Blocks go in, sequences come out: frames of several blocks, state and actions in place."""
    spec = SPECS[name]
    history, blocks, _, _ = play(spec, 9 * spec.steps + 1)
    buffer = SequenceBuffer(spec, 9 * E, 0.0)
    for block in blocks:
        buffer.add(block)
    n = buffer.sampleable
    assert n == (9 - spec.predecessors) * E
    sample = buffer.sample((np.arange(n) + 0.5) / n)
    for column, key in enumerate(sample.keys.tolist()):
        number, e = divmod(key, E)
        stop = (number + 1) * spec.steps
        start = stop - spec.timesteps
        context = spec.frame_stack - 1
        for array, rows in {
            "observation": cut(history, "observation", start - context, stop),
            "flags": cut(history, "flags", start - context, stop),
            "reward": cut(history, "reward", start, stop),
            "action": cut(history, "action", start, stop - 1),
        }.items():
            np.testing.assert_array_equal(sample.arrays[array][:, column], rows[:, e])
        np.testing.assert_array_equal(sample.arrays["state"][column], history["state"][start][e])
        before = cut(history, "action", start - 1, start)[0, e]
        assert sample.arrays["previous_action"][column] == before


@pytest.mark.parametrize("name", SPECS)
def test_every_step_is_in_one_block_or_pending(name: str) -> None:
    spec = SPECS[name]
    for rows in range(1, 3 * spec.steps + 3):
        history, blocks, writer, _ = play(spec, rows)
        steps = sum(int((flags & FIRST == 0).sum()) for flags in history["flags"])
        assert sum(block.steps for block in blocks) + writer.pending_steps == steps


def test_nothing_is_pending_before_the_first_row() -> None:
    assert SequencePlan(SPECS["r2d2"], BEHAVIOUR, Priorities()).writer(2).pending_steps == 0


def test_no_memory_is_shared_between_blocks() -> None:
    """A block waits in a queue while the next ones are written."""
    _, blocks, writer, _ = play(SPECS["burn-in-of-two-blocks"], 16)
    for block, after in pairwise(blocks):
        for name in ("frames", "flags", "reward", "action", "state", "previous_action"):
            assert not np.shares_memory(getattr(block, name), getattr(after, name))
    for array in (writer._frames, *writer._small.values()):
        for name in ("frames", "flags", "reward", "action"):
            assert not np.shares_memory(getattr(blocks[-1], name), array)


def test_two_sessions_are_two_streams() -> None:
    plan = SequencePlan(SPECS["dqn"], BEHAVIOUR, Priorities())
    streams = {plan.writer(E)._stream_id for _ in range(100)}
    assert len(streams) == 100
    assert all(0 <= chain < 2**63 for chain in streams)
