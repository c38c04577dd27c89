"""Compliance suite of all replay storages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.replay.buffer import SequenceBuffer
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.mapped_files import open_buffer
from seedbed.replay.replay_buffer import ReplayBuffer
from seedbed.replay.sequence import Sample, SequenceSpec
from seedbed.spec import ArraySpec
from tests.support.device_replay import SampledDeviceReplay
from tests.support.replay_streams import Stream
from tests.support.shard_process import shards

pytestmark = pytest.mark.backends

PIXELS = ArraySpec((4, 3), "uint8")
SPECS = {
    "r2d2": SequenceSpec(PIXELS, steps=8, burn_in=4, frame_stack=4, state_size=6),
    "long burn-in": SequenceSpec(PIXELS, steps=3, burn_in=7, frame_stack=2, state_size=2),
    "dqn": SequenceSpec(ArraySpec((5,), "float32"), steps=1),
    "dqn, 3 steps": SequenceSpec(ArraySpec((5,), "float32"), steps=1, lookahead=2),
}
Make = Callable[..., Any]


@pytest.fixture(params=["host", "device", "files", "service"])
def make(request: pytest.FixtureRequest, backend: Backend, tmp_path: Path) -> Iterator[Make]:
    """Make a replay: `make(spec, capacity, exponent)`."""
    kind: str = request.param
    if kind != "device" and os.environ.get("SEEDBED_TEST_BACKEND") == "jax":
        pytest.skip("has no backend")

    def replay(spec: SequenceSpec, capacity: int, exponent: float = 0.9) -> Any:
        if kind == "host":
            return SequenceBuffer(spec, capacity, exponent)
        folder = tmp_path / str(len(made))
        if kind == "files":
            made.append(open_buffer(folder, spec, capacity, exponent))
            return made[-1]
        if kind == "service":
            shard = stack.enter_context(
                shards(folder, 1, capacity=capacity, alpha=exponent, directory=False)
            )
            made.append(ShardedReplay(spec, [one.address for one in shard], exponent))
            return made[-1]
        return SampledDeviceReplay(backend, spec, capacity, exponent, transfer_steps=1)

    made: list[ReplayBuffer] = []
    with ExitStack() as stack:
        yield replay
        for one in made:
            one.close()


def draw(replay: Any, count: int, seed: int = 1) -> Sample:
    flush(replay)
    return replay.request_sample(np.random.default_rng(seed).random(count)).result(30)


def flush(replay: Any) -> None:
    """Wait until shards have stored what they were sent."""
    if isinstance(replay, ShardedReplay):
        replay.flush(30)


def identify(
    stream_of: dict[int, Stream], arrays: dict[str, NDArray[Any]], b: int
) -> tuple[Stream, int, int]:
    """Stream, environment and number of a drawn sequence, read from its last reward."""
    last = round(float(arrays["reward"][-1, b]) * 10_000)
    stream_id, rest = divmod(last, 10_000)
    e, row = divmod(rest, 100)
    spec = stream_of[stream_id].spec
    number, remainder = divmod(row + 1, spec.steps)
    assert remainder == 0, "a sequence ends with its chunk"
    return stream_of[stream_id], e, number - 1


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", SPECS)
def test_what_is_drawn_was_inserted(make: Make, name: str) -> None:
    spec = SPECS[name]
    replay = make(spec, 40)
    streams = {stream_id: Stream(spec, stream_id, e) for stream_id, e in ((1, 3), (2, 1), (3, 4))}
    rng = np.random.default_rng(5)
    seen: set[tuple[int, int, int]] = set()
    for turn in range(24):
        replay.add(streams[int(rng.integers(1, 4))].chunk())
        flush(replay)
        if replay.stats().sampleable == 0:
            continue
        sample = draw(replay, 16, turn)
        for b in range(16):
            stream, e, number = identify(streams, sample.arrays, b)
            expected = stream.sequence(e, number)
            for part, value in expected.items():
                axis = 0 if part in ("previous_action", "state") else 1
                drawn = np.take(sample.arrays[part], b, axis)
                np.testing.assert_array_equal(drawn, value, err_msg=part)
            assert sample.version[b] == number
            seen.add((stream.stream_id, e, number))
    assert len(seen) > 20
    assert replay.stats().inserted > 40, "nothing was evicted"


@pytest.mark.parametrize("late", [False, True], ids=["initial", "new"])
@pytest.mark.parametrize("exponent", [0.9, 0.0])
def test_drawn_in_proportion_to_priority(make: Make, exponent: float, late: bool) -> None:
    """χ² with 19 degrees of freedom: below 43.8 in all but 0.1 % of cases."""
    spec = SPECS["dqn"]
    replay = make(spec, 64, exponent)
    stream = Stream(spec, 1, 20)
    replay.add(stream.chunk())
    priority = np.linspace(0.1, 3.0, 20)
    replay.add(stream.chunk(np.ones(20) if late else priority))
    flush(replay)
    assert replay.stats().sampleable == 20
    if late:
        keys = np.unique(draw(replay, 1000).keys)  # in the order of insertion
        replay.update_priorities(keys, priority.astype(np.float32))
    count = 20_000
    sample = draw(replay, count)
    counts = np.bincount(
        [identify({1: stream}, sample.arrays, b)[1] for b in range(count)], minlength=20
    )

    def chi2(alpha: float) -> float:
        expected = count * priority**alpha / (priority**alpha).sum()
        return float(((counts - expected) ** 2 / expected).sum())

    assert chi2(exponent) < 43.8
    assert chi2(exponent + 0.1) > 43.8, "another exponent must not pass"
    np.testing.assert_allclose(
        np.unique(sample.probability),
        np.unique((priority**exponent / (priority**exponent).sum()).astype(np.float32)),
        rtol=1e-5,
    )


def test_new_priorities_count_and_late_ones_do_not(make: Make) -> None:
    spec = SPECS["dqn"]
    replay = make(spec, 8)
    stream = Stream(spec, 1, 2)
    for _ in range(4):
        replay.add(stream.chunk())
    keys = np.unique(draw(replay, 200).keys)
    assert len(keys) == 6
    replay.update_priorities(keys, np.where(keys == keys[3], 1.0, 0.0).astype(np.float32))
    assert set(draw(replay, 50).keys.tolist()) == {int(keys[3])}
    replay.add(stream.chunk())  # evicts the first chunk, which invalidates the second
    before = draw(replay, 200).probability.max()
    replay.update_priorities(keys[:2], np.full(2, 1e6, np.float32))
    flush(replay)
    assert replay.stats().stale_updates == 2
    assert draw(replay, 200).probability.max() == pytest.approx(before)


@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf])
def test_wrong_priorities_are_refused(make: Make, wrong: float) -> None:
    spec = SPECS["dqn"]
    replay = make(spec, 8)
    stream = Stream(spec, 1, 2)
    replay.add(stream.chunk())
    replay.add(stream.chunk([1.0, 2.0]))
    before = draw(replay, 100)
    with pytest.raises(ValueError, match=r"priority (nan|-1.0|inf) of sequence 1 must be finite"):
        replay.add(stream.chunk([1.0, wrong]))
    with pytest.raises(ValueError, match=r"priority .* of key 3 must be finite"):
        replay.update_priorities(np.array([2, 3]), np.array([5.0, wrong], np.float32))
    after = draw(replay, 100)
    np.testing.assert_array_equal(before.keys, after.keys)
    np.testing.assert_array_equal(before.probability, after.probability)


def test_wrong_length_and_nothing_to_draw(make: Make) -> None:
    spec = SPECS["r2d2"]
    replay = make(spec, 40)
    draws_on_host = not isinstance(replay, SampledDeviceReplay)
    if draws_on_host:
        with pytest.raises(ValueError, match="nothing can be drawn: 0 of 40 items"):
            replay.request_sample(np.zeros(1)).result(30)
    other = Stream(SPECS["long burn-in"], 1, 2)
    with pytest.raises(ValueError, match=r"frames of a chunk is .* sequences of 4 \+ 8 steps"):
        replay.add(other.chunk())
    replay.add(Stream(spec, 1, 2).chunk())
    flush(replay)
    if draws_on_host:
        with pytest.raises(ValueError, match=r"nothing can be drawn: [02] of 40 items"):
            replay.request_sample(np.zeros(1)).result(30)


def test_a_gap_begins_the_stream_anew(make: Make) -> None:
    """A chunk was lost on its way: what came before it must not be taken for its burn-in."""
    spec = SPECS["r2d2"]
    replay = make(spec, 40)
    stream = Stream(spec, 1, 2)
    for number in range(6):
        chunk = stream.chunk()
        if number != 3:
            replay.add(chunk)
    sample = draw(replay, 200)
    numbers = {identify({1: stream}, sample.arrays, b)[2] for b in range(200)}
    assert numbers == {1, 2, 5}


@pytest.mark.slow_on_jax
def test_sums_on_the_device_follow_their_items(backend: Backend) -> None:
    """Over several groups of items, with evictions that invalidate sequences of another group."""
    from seedbed.replay.client.device_tables import GROUP_SIZE

    spec = SequenceSpec(ArraySpec((2,), "float32"), steps=1, lookahead=1)
    replay = SampledDeviceReplay(backend, spec, 3 * GROUP_SIZE, 0.9, transfer_steps=80)
    stream = Stream(spec, 1, GROUP_SIZE // 3)
    rng = np.random.default_rng(1)
    for _ in range(30):
        replay.add(stream.chunk(rng.random(stream.environments)))
        if replay.ring.sampleable:
            sample = draw(replay, 32)
            priority = rng.random(32).astype(np.float32)
            replay.update_priorities(
                np.unique(sample.keys), priority[: len(np.unique(sample.keys))]
            )
        state = replay.tables.read()
        np.testing.assert_allclose(
            state["group_total"], state["scaled_priority"].reshape(-1, GROUP_SIZE).sum(1), rtol=1e-5
        )
        np.testing.assert_array_equal(
            state["scaled_priority"][: replay.capacity] > 0, replay.ring.is_sampleable
        )
    # χ² with 2 degrees of freedom: below 13.8 in all but 0.1 % of cases.
    count = 20_000
    items = replay.ring.item(draw(replay, count).keys)
    counts = np.bincount(items // GROUP_SIZE, minlength=len(state["group_total"]))
    assert counts[-1] == 0, "the spare item's group"
    expected = count * state["group_total"][:-1] / state["group_total"].sum()
    assert (expected > count / 10).all()
    assert ((counts[:-1] - expected) ** 2 / expected).sum() < 13.8


@pytest.mark.parametrize("weights", [[0, 3, 0, 0, 1, 0], [2, 0, 0], [0, 0, 1e-30, 1e30]])
def test_what_weighs_nothing_is_never_chosen(backend: Backend, weights: list[float]) -> None:
    from keras import ops

    from seedbed.replay.client.device_tables import choose_each, choose_shared

    wide = np.array(weights, np.float32)
    uniform = np.append(np.linspace(0, 1, 400, endpoint=False), 1 - 2**-24).astype(np.float32)
    cumulative = np.cumsum(wide.astype(np.float64))
    wanted = [int((cumulative > point * cumulative[-1]).argmax()) for point in uniform[:-1]]
    shared = ops.convert_to_numpy(choose_shared(ops.convert_to_tensor(wide), uniform))
    rows = ops.convert_to_tensor(np.tile(wide, (len(uniform), 1)))
    np.testing.assert_array_equal(shared, ops.convert_to_numpy(choose_each(rows, uniform)))
    assert (wide[shared] > 0).all()
    assert (shared[:-1] != wanted).mean() < 0.01, "but for rounding, as in float64"


def test_the_papers_replay_fits() -> None:
    from seedbed.replay.buffer import buffer_bytes
    from seedbed.replay.client.device_tables import device_bytes

    spec = SequenceSpec(ArraySpec((84, 84), "uint8"), 80, 40, frame_stack=4, state_size=1024)
    once = 100_000 * 80 * 84 * 84
    for size in (buffer_bytes(spec, 100_000), device_bytes(spec, 100_000)):
        assert once < size < 58e9


def test_priorities_of_any_size(make: Make) -> None:
    """What float32 cannot add up to is drawn all the same, and nothing else is."""
    spec = SPECS["dqn"]
    replay = make(spec, 40, 2.0)
    stream = Stream(spec, 1, 4)
    replay.add(stream.chunk())
    replay.add(stream.chunk([0.0, 1e-30, 1e-25, 0.0]))
    sample = draw(replay, 50)
    assert np.isfinite(sample.probability).all()
    assert {identify({1: stream}, sample.arrays, b)[1] for b in range(50)} <= {1, 2}
    replay.add(stream.chunk([1e25, 1.0, 0.0, 1e20]))
    sample = draw(replay, 50)
    assert np.isfinite(sample.probability).all()
    assert {identify({1: stream}, sample.arrays, b)[1] for b in range(50)} <= {0, 3}
