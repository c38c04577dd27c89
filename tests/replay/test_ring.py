"""Ring index against a list of everything: stored, sampleable and invalidated sequences."""

from __future__ import annotations

import numpy as np
import pytest

from seedbed.replay.ring import Ring
from tests.support.shard_streams import SPECS, Reference, Traffic


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("capacity", [4, 17, 40])
def test_what_can_be_drawn_is_what_is_sampleable(name: str, capacity: int) -> None:
    """Streams begin, end and have gaps; the ring goes round several times."""
    spec = SPECS[name]
    ring, reference = Ring(capacity, spec.predecessors), Reference(spec, capacity)
    traffic = Traffic(spec, seed=capacity)
    drawable = 0
    for _ in range(120 if spec.steps < 80 else 60):
        chunk, sequences = traffic.next()
        before = ring.key[ring.is_sampleable]
        added = ring.add(chunk.stream_id, chunk.chunk_index, chunk.environments)
        reference.add(chunk, sequences)
        wanted = sorted(reference.sampleable())
        assert sorted(ring.key[ring.is_sampleable].tolist()) == wanted
        assert ring.sampleable == len(wanted)
        assert set(added.keys[added.sampleable]) == set(wanted) & set(added.keys)
        lost = set(before.tolist()) - set(wanted)
        assert {key % capacity for key in lost} <= set(added.invalidated.tolist())
        assert ring.size == len(reference.items)
        kept = {item["key"] for item in reference.items}
        assert set(ring.key[ring.key >= 0].tolist()) == kept, "first in, first out"
        drawable += len(wanted)
    assert drawable or capacity < 40, "nothing could ever be drawn: this proves nothing"
    assert ring.next_key > 3 * capacity


def test_a_small_ring_that_can_be_read() -> None:
    """Two environments, chunks that reach into the one before."""
    ring = Ring(4, predecessors=1)
    first = ring.add(7, 0, 2)
    assert (first.keys.tolist(), first.sampleable.tolist()) == ([0, 1], [False, False])
    second = ring.add(7, 1, 2)
    assert (second.keys.tolist(), second.sampleable.tolist()) == ([2, 3], [True, True])
    # One place is needed: key 0 is evicted, which invalidates key 2 (its first frames are there).
    other = ring.add(8, 0, 1)
    assert other.keys.tolist() == [4]
    assert ring.contains(np.array([0, 1, 2, 3, 4])).tolist() == [False, True, True, True, True]
    assert ring.key[ring.is_sampleable].tolist() == [3]
    assert sorted(other.invalidated.tolist()) == [0, 2]


def test_a_key_of_another_generation_is_not_there() -> None:
    ring = Ring(3, predecessors=0)
    for number in range(5):
        ring.add(1, number, 1)
    keys = np.array([-1, 0, 1, 2, 3, 4, 5, 7])
    assert ring.contains(keys).tolist() == [False, False, False, True, True, True, False, False]


@pytest.mark.parametrize(("number", "count"), [(0, 2), (2, 2), (5, 2), (1, 1), (1, 3)])
def test_a_block_that_does_not_follow_begins_anew(number: int, count: int) -> None:
    """The same number again, a gap, and another number of environments."""
    ring = Ring(20, predecessors=1)
    ring.add(1, 0, 2)
    assert not ring.add(1, number, count).sampleable.any()
    assert ring.add(1, number + 1, count).sampleable.all()


def test_a_block_that_is_too_large_is_refused_and_changes_nothing() -> None:
    ring = Ring(4, predecessors=1)
    ring.add(1, 0, 2)
    ring.add(1, 1, 2)
    with pytest.raises(ValueError, match=r"a chunk of 5 sequences .* replay of 4"):
        ring.add(1, 2, 5)
    assert ring.key.tolist() == [0, 1, 2, 3]
    assert ring.sampleable == 2
    assert ring.add(1, 2, 2).sampleable.all(), "its stream goes on"


def test_streams_that_have_ended_are_forgotten_and_no_others() -> None:
    ring = Ring(4, predecessors=1)
    for stream_id in range(100):
        ring.add(stream_id, 0, 1)
        assert len(ring._streams) <= 2 * ring.capacity
        assert ring.add(stream_id, 1, 1).sampleable.all(), "it goes on"


def test_restore_takes_sampleable_sequences_and_no_impossible_keys() -> None:
    ring = Ring(13, predecessors=2)
    traffic = Traffic(SPECS["dqn-n3"], seed=3)
    while ring.next_key < 60 or ring.sampleable < 3:
        chunk, _ = traffic.next()
        ring.add(chunk.stream_id, chunk.chunk_index, chunk.environments)
    other = Ring(13, predecessors=2)
    other.restore(ring.key.copy(), ring.previous.copy())
    np.testing.assert_array_equal(other.is_sampleable, ring.is_sampleable)
    assert (other.sampleable, other.next_key) == (ring.sampleable, ring.next_key)
    # Evictions go on as they would have.
    for number in range(20):
        for one in (ring, other):
            one.add(1000, number, 1)
        np.testing.assert_array_equal(other.is_sampleable, ring.is_sampleable)
    key = ring.key.copy()
    key[[2, 5]] = key[[5, 2]]  # in foreign items
    key[7] -= 13  # too old to be stored
    other = Ring(13, predecessors=2)
    other.restore(key, ring.previous.copy())
    assert (other.key[[2, 5, 7]] == -1).all()
    assert set(other.key[other.is_sampleable]) < set(ring.key[ring.is_sampleable])
