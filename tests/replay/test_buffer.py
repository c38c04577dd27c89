"""The sequence buffer against a list that keeps every sequence whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.replay.buffer import SequenceBuffer, buffer_bytes, stored_arrays
from seedbed.replay.sequence import Sample, SequenceChunk, SequenceSpec
from seedbed.spec import ArraySpec
from tests.support.shard_streams import SPECS, Reference, Stream, Traffic

# Table 8 of the SEED paper, and Table 9's frames.
PAPER = SequenceSpec(ArraySpec((84, 84), "uint8"), steps=80, burn_in=40, frame_stack=4,
                     state_size=1024)  # fmt: skip
SMALL = SequenceSpec(ArraySpec((2,), "float32"), steps=1)


def check_sample(sample: Sample, wanted: dict[int, dict[str, Any]]) -> None:
    """Every array is the reference's, byte by byte."""
    for column, key in enumerate(sample.keys.tolist()):
        item = wanted[key]
        for name, array in sample.arrays.items():
            got = array[column] if name in ("previous_action", "state") else array[:, column]
            assert got.dtype == item[name].dtype
            assert got.tobytes() == item[name].tobytes(), f"{name} of key {key}"
        assert sample.version[column] == item["version"]
        assert sample.age_s[column] >= 0


def every_item(buffer: SequenceBuffer) -> Sample:
    """All that can be drawn, once each: the buffer is a uniform one."""
    n = buffer.sampleable
    return buffer.sample((np.arange(n) + 0.5) / n)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("capacity", [7, 40])
def test_samples_are_the_sequences_that_came_in(name: str, capacity: int) -> None:
    """After every insertion exactly the sampleable ones can be drawn, while the ring goes round
    several times.
    """
    spec = SPECS[name]
    buffer, reference = SequenceBuffer(spec, capacity, 0.0), Reference(spec, capacity)
    traffic = Traffic(spec, seed=capacity)
    drawn = 0
    for _ in range(40 if spec.steps == 80 else 100):
        chunk, sequences = traffic.next()
        buffer.add(chunk)
        reference.add(chunk, sequences)
        wanted = reference.sampleable()
        assert buffer.sampleable == len(wanted)
        assert buffer.total_priority == len(wanted)
        if wanted:
            sample = every_item(buffer)
            assert sorted(sample.keys.tolist()) == sorted(wanted)
            assert set(sample.probability) == {1 / len(wanted)}
            check_sample(sample, wanted)
            drawn += len(wanted)
    assert drawn > 100 or capacity == 7, "hardly anything could be drawn: this proves nothing"


def filled(exponent: float, priority: NDArray[np.float32]) -> SequenceBuffer:
    """A buffer of single transitions with these priorities, with keys from 1."""
    buffer = SequenceBuffer(SMALL, len(priority) + 1, exponent)
    stream = Stream(SMALL, 1, 1, seed=0)
    for p in np.concatenate([[1], priority]).astype(np.float32):  # the first is not sampleable
        chunk, _ = stream.chunk()
        buffer.add(replace(chunk, priority=p[None]))
    return buffer


def chi_squared(seen: NDArray[Any], weight: NDArray[Any]) -> float:
    expected = seen.sum() * weight / weight.sum()
    return float(((seen - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("updated", [False, True])
@pytest.mark.parametrize("exponent", [0.9, 0.6, 0.0])
def test_sequences_are_drawn_by_their_priorities(exponent: float, updated: bool) -> None:
    """χ² with 19 degrees of freedom is above 43.8 once in a thousand times."""
    random = np.random.default_rng(5)
    priority = random.uniform(0.05, 2, 20).astype(np.float32)
    buffer = filled(exponent, np.ones(20, np.float32) if updated else priority)
    if updated:
        buffer.update_priorities(np.arange(1, 21), priority)
        assert buffer.stats().stale_updates == 0
    sample = buffer.sample(random.random(100_000))
    weight = priority.astype(np.float64) ** exponent
    np.testing.assert_allclose(
        sample.probability, (weight / weight.sum())[sample.keys - 1], rtol=1e-12
    )
    seen = np.bincount(sample.keys - 1, minlength=20)
    assert chi_squared(seen, weight) < 43.8
    for other in {0.0, 0.5, 0.6, 0.8, 0.9, 1.0} - {exponent}:
        assert chi_squared(seen, priority**other) > 43.8, "another exponent would be noticed"


def test_late_priorities_are_left_out_and_counted() -> None:
    buffer = filled(1.0, np.ones(4, np.float32))
    stream = Stream(SMALL, 2, 1, seed=1)
    for _ in range(3):
        buffer.add(replace(stream.chunk()[0], priority=np.ones(1, np.float32)))
    # Keys 0 to 2 are gone, 3 has lost the chunk before it, 5 never had one. -1 is no key.
    keys = np.array([-1, 1, 2, 3, 4, 5, 6, 7, 99, 6])
    buffer.update_priorities(keys, np.arange(10, dtype=np.float32))
    assert buffer.stats().stale_updates == 6
    sample = buffer.sample(np.random.default_rng(0).random(200))
    got = dict(zip(sample.keys.tolist(), sample.probability, strict=True))
    # Of one that was drawn twice, the last priority counts.
    assert got == pytest.approx({4: 4 / 20, 6: 9 / 20, 7: 7 / 20})
    buffer.update_priorities(np.array([1]), np.ones(1, np.float32))
    assert buffer.stats().stale_updates == 7


def copies(buffer: SequenceBuffer) -> dict[str, NDArray[Any]]:
    return {name: array.copy() for name, array in buffer._arrays.items()}


def state_of(buffer: SequenceBuffer) -> dict[str, bytes]:
    arrays = copies(buffer)
    ring = buffer.ring
    more = {"whole": ring.is_sampleable, "ring": ring.key, "tree": buffer._tree._sums}
    return {
        **{name: array.tobytes() for name, array in {**arrays, **more}.items()},
        "counts": bytes(str((ring.next_key, *buffer.stats())), "ascii"),
    }


def spoilt(chunk: SequenceChunk, name: str) -> SequenceChunk:
    """A chunk that is wrong in one way."""
    if name == "length":
        return replace(chunk, reward=chunk.reward[1:])
    if name == "frames":
        return replace(chunk, frames=chunk.frames[:-1])
    if name == "dtype":
        return replace(chunk, frames=chunk.frames.astype(np.uint16))
    if name == "state":
        return replace(chunk, state=chunk.state[:, 1:])
    if name == "columns":
        return replace(chunk, action=chunk.action[:, 1:])
    value = {"nan": np.nan, "negative": -0.5, "infinite": np.inf}[name]
    priority = chunk.priority.copy()
    priority[1] = value
    return replace(chunk, priority=priority)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nan", r"priority nan of sequence 1 must be finite"),
        ("negative", r"priority -0.5 of sequence 1 must be finite and not negative"),
        ("infinite", r"priority inf of sequence 1"),
        ("length", r"reward of a chunk is float32\[9, 2\], .* float32\[10, 2\].* 4 \+ 5 steps"),
        ("frames", r"frames of a chunk is uint8\[4, 2, 3\], .* uint8\[5, 2, 3\]"),
        ("dtype", r"frames of a chunk is uint16\[5, 2, 3\]"),
        ("state", r"state of a chunk is float32\[2, 1\], .* float32\[2, 2\]"),
        ("columns", r"action of a chunk is int32\[9, 1\]"),
        ("large", r"a chunk of 9 sequences does not fit into a replay of 8"),
    ],
)
def test_blocks_that_cannot_be_are_refused_and_change_nothing(name: str, says: str) -> None:
    spec = SPECS["one-chunk"]
    buffer, stream = SequenceBuffer(spec, 8, 0.9), Stream(spec, 1, 2, seed=0)
    for _ in range(3):
        buffer.add(stream.chunk()[0])
    before = state_of(buffer)
    good, _ = stream.chunk()
    bad = Stream(spec, 1, 9, seed=0).chunk()[0] if name == "large" else spoilt(good, name)
    with pytest.raises(ValueError, match=says):
        buffer.add(bad)
    assert state_of(buffer) == before
    sampleable = buffer.sampleable
    buffer.add(good)
    assert buffer.sampleable == sampleable + 2, "its stream goes on"


@pytest.mark.parametrize("priority", [np.nan, -1.0, np.inf])
def test_priorities_that_cannot_be_are_refused_and_change_nothing(priority: float) -> None:
    buffer = filled(0.9, np.ones(4, np.float32))
    before = state_of(buffer)
    with pytest.raises(ValueError, match=r"priority \S+ of key 3 must be finite and not negative"):
        buffer.update_priorities(np.array([2, 3]), np.array([5, priority], np.float32))
    with pytest.raises(ValueError, match=r"keys \[2\] with priorities \[3\]"):
        buffer.update_priorities(np.array([2, 3]), np.ones(3, np.float32))
    assert state_of(buffer) == before


def test_an_empty_buffer_says_why_nothing_can_be_drawn() -> None:
    spec = SPECS["one-chunk"]
    buffer = SequenceBuffer(spec, 8, 0.9)
    with pytest.raises(ValueError, match=r"0 of 8 items are in use"):
        buffer.sample(np.array([0.5]))
    buffer.add(Stream(spec, 1, 3, seed=0).chunk()[0])
    with pytest.raises(ValueError, match=r"3 of 8 items .* the 1 chunks before it yet"):
        buffer.sample(np.array([0.5]))


@pytest.mark.parametrize("name", ["r2d2-stack", "dqn", "long-burn-in"])
def test_a_buffer_that_takes_arrays_over_gives_the_same_samples(name: str) -> None:
    spec, random = SPECS[name], np.random.default_rng(2)
    buffer, reference = SequenceBuffer(spec, 24, 0.9), Reference(spec, 24)
    traffic = Traffic(spec, seed=4)
    while buffer.ring.inserted < 60 or buffer.sampleable < 5:
        chunk, sequences = traffic.next()
        buffer.add(chunk)
        reference.add(chunk, sequences)
    keys = buffer.sample(random.random(8)).keys
    buffer.update_priorities(keys, random.random(8).astype(np.float32))
    other = SequenceBuffer(spec, 24, 0.9, copies(buffer))
    uniform = random.random(50)
    one, two = buffer.sample(uniform), other.sample(uniform)
    np.testing.assert_array_equal(one.keys, two.keys)
    np.testing.assert_array_equal(one.probability, two.probability)
    for array in one.arrays:
        np.testing.assert_array_equal(one.arrays[array], two.arrays[array])
    # Old streams go on as new stream; what comes from now on is sampleable as well.
    for stream_id in list(reference._generation):
        generation, _, environments = reference._generation[stream_id]
        reference._generation[stream_id] = (generation, -2, environments)
    for _ in range(30):
        chunk, sequences = traffic.next()
        other.add(chunk)
        buffer.add(chunk)
        reference.add(chunk, sequences)
        wanted = reference.sampleable()
        assert other.sampleable == len(wanted)
        if wanted:
            check_sample(other.sample(random.random(20)), wanted)


def test_a_torn_priority_becomes_the_usual_one() -> None:
    """After a crash in the midst of writing it; the rest of the buffer may be empty still."""
    buffer = filled(1.0, np.full(4, 3.0, np.float32))
    state = copies(SequenceBuffer(SMALL, 20, 1.0))
    for name, array in copies(buffer).items():
        state[name][:5] = array
    state["priority"][2] = np.nan
    other = SequenceBuffer(SMALL, 20, 1.0, state)
    assert set(other.sample(np.linspace(0, 0.99, 50)).probability) == {0.25}


def allocated(buffer: SequenceBuffer) -> int:
    """Bytes of every array that hangs on a buffer."""
    things = [*vars(buffer).values(), *vars(buffer.ring).values(), *vars(buffer._tree).values()]
    things += buffer._arrays.values()
    return sum(array.nbytes for array in things if isinstance(array, np.ndarray))


@pytest.mark.parametrize("name", SPECS)
def test_the_estimate_is_what_is_allocated(name: str) -> None:
    for capacity in (1, 7, 64):
        assert buffer_bytes(SPECS[name], capacity) == allocated(
            SequenceBuffer(SPECS[name], capacity, 0.9)
        )


def test_the_papers_replay_takes_58_gb() -> None:
    """10^5 sequences; frames once, which are 56.4 GB of it."""
    frames = 100_000 * stored_arrays(PAPER)["frames"].row_bytes
    assert frames == pytest.approx(56.4e9, rel=1e-3)
    assert frames < buffer_bytes(PAPER, 100_000) <= 58e9


def test_samples_own_their_memory() -> None:
    """A batch is on its way to the device while its sequences are replaced."""
    buffer = filled(0.9, np.ones(4, np.float32))
    sample = buffer.sample(np.array([0.1, 0.9]))
    for array in sample.arrays.values():
        for stored in buffer._arrays.values():
            assert not np.shares_memory(array, stored)
