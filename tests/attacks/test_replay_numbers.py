"""Wrong numbers for a replay shard: each is refused by name, and nothing of it is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from seedbed.numbers import MAX_PRIORITY, Bounds
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.codec import spec_message
from seedbed.replay.mapped_files import open_buffer
from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.rpc import channels
from seedbed.spec import ArraySpec
from seedbed.v1 import replay_pb2 as wire
from tests.support.raw_wire import metadata_of
from tests.support.shard_process import ALPHA, ShardProcess, error_of, insert_message, shards
from tests.support.shard_streams import Stream
from tests.support.waiting import wait_for

WAIT_S = 30.0
SPEC = SequenceSpec(
    ArraySpec((4,), "float32"),
    **{"steps": 4, "burn_in": 2, "lookahead": 1, "state_size": 3},
    environment="CartPole-v1",
    actions=9,
)


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardProcess]:
    with shards(tmp_path_factory.mktemp("shard"), 1, directory=False) as made:
        yield made[0]


def good(number: int = 0) -> SequenceChunk:
    stream = Stream(SPEC, 1, environments=2, seed=number)
    for _ in range(number):
        stream.chunk()
    return stream.chunk()[0]


def metadata(**hello: Any) -> list[tuple[str, str | bytes]]:
    return metadata_of(
        wire.ReplayHello(
            protocol_version=1,
            oldest_protocol_version=1,
            learner="stranger",
            spec=spec_message(SPEC),
            priority_exponent=ALPHA,
            **hello,
        )
    )


def talk(shard: ShardProcess, method: str, *messages: bytes, **hello: Any) -> tuple[Any, str]:
    """Send messages after Hello; return the status with which the stream ends."""
    with channels.channel(shard.address) as channel:
        call: Any = channel.stream_stream(f"/seedbed.v1.Replay/{method}")
        try:
            return error_of(call(iter(messages), metadata=metadata(**hello), timeout=WAIT_S))
        except AssertionError:
            return grpc.StatusCode.OK, ""


def with_number(name: str, value: float, number: int = 0) -> Callable[[], SequenceChunk]:
    def make() -> SequenceChunk:
        chunk = good(number)
        array = getattr(chunk, name)
        array[(-1,) * array.ndim] = value
        return chunk

    return make


WRONG_CHUNKS: dict[str, tuple[Callable[[], SequenceChunk], str, str]] = {
    "a NaN frame": (with_number("frames", np.nan), "frames", "nan at [3, 1, 3]"),
    "a huge reward": (with_number("reward", -3e38), "reward", "at [7, 1]"),
    "a NaN state": (with_number("state", np.nan), "state", "nan at [1, 2]"),
    "unknown flags": (with_number("flags", 255), "flags", "255 at [7, 1]"),
    "an action too large": (with_number("action", 9), "action", "to 8, received 9 at [6, 1]"),
    "an action before the stream began, later": (
        with_number("action", -1, number=1),
        "action",
        "0 to 8, received -1 at [6, 1]",
    ),
    "a previous action too large": (with_number("previous_action", 9), "previous_action", "at [1]"),
    "a priority that takes all draws": (with_number("priority", 1e30), "priority", "0 to 1e+09"),
    "a NaN version": (lambda: replace(good(), version=np.nan), "version", "nan"),
}


@pytest.mark.parametrize("case", WRONG_CHUNKS)
def test_a_wrong_number_is_refused_by_name_and_nothing_is_stored(
    shard: ShardProcess, case: str
) -> None:
    make, field, received = WRONG_CHUNKS[case]
    before = shard.state()
    code, said = talk(shard, "Insert", insert_message(make(), slice(0, 2), 5, 0))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert said.startswith(f"Insert: {field}: expected ")
    assert received in said
    assert shard.state().inserted == before.inserted


def test_a_learner_that_waits_learns_why_its_chunk_is_refused(shard: ShardProcess) -> None:
    """It sends nothing more before it has an answer: the refusal waited for its next message."""
    chunk = insert_message(with_number("reward", np.nan)(), slice(0, 2), 5, 0)
    waiting = threading.Event()

    def messages() -> Iterator[bytes]:
        yield chunk
        waiting.wait(WAIT_S)

    with channels.channel(shard.address) as channel:
        call: Any = channel.stream_stream("/seedbed.v1.Replay/Insert")
        code, said = error_of(call(messages(), metadata=metadata(), timeout=WAIT_S))
        waiting.set()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "reward: expected " in said


@pytest.mark.parametrize("numbers", [[9], [0, 0]])
def test_inserts_have_no_gaps(shard: ShardProcess, numbers: list[int]) -> None:
    before = shard.state().inserted
    messages = [insert_message(good(i), slice(0, 2), 5, n) for i, n in enumerate(numbers)]
    code, said = talk(shard, "Insert", *messages)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    due = len(numbers) - 1
    assert f"sequence: expected {due}, received {numbers[-1]}" in said
    assert shard.state().inserted == before + 2 * due


def test_updates_have_no_gaps_and_right_numbers(shard: ShardProcess) -> None:
    def update(number: int = 0, key: int = 0, priority: float = 1.0) -> bytes:
        keys, priorities = np.array([key], np.int64), np.array([priority], np.float32)
        return wire.PrioritizeRequest(
            sequence=number, key=keys.tobytes(), priority=priorities.tobytes()
        ).SerializeToString()

    for messages, said_ in (
        ([update(1)], "sequence: expected 0, received 1"),
        ([update(priority=-1)], "priority: expected 0 to 1e+09, received -1.0 at [0]"),
        ([update(key=-1)], "key: expected 0 to "),
    ):
        code, said = talk(shard, "Prioritize", *messages)
        assert (code, said_ in said) == (grpc.StatusCode.INVALID_ARGUMENT, True), said


def test_uniform_numbers_are_in_range(shard: ShardProcess) -> None:
    for value in (np.nan, 1.0):
        uniform = np.array([0.5, value]).tobytes()
        message = wire.SampleRequest(request=1, uniform=uniform).SerializeToString()
        code, said = talk(shard, "Sample", message)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert f"uniform: expected [0, 1), received {value} at [1]" in said


def test_bounds_are_the_shards_own(tmp_path: Path) -> None:
    """Neither its first learner nor a later one widens them, and none has to name its own."""
    large = insert_message(with_number("reward", 5e6)(), slice(0, 2), 5, 0)
    with shards(tmp_path, 1) as (shard,):
        for bound in (1e308, 1e7):
            code, said = talk(shard, "Insert", large, max_abs_reward=bound)
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert f"the learner's are within {bound:g} and 1e+06" in said
            assert "--max-abs-reward" in said
        for bounds in ({}, {"max_abs_reward": 9.0}):
            said = talk(shard, "Insert", large, **bounds)[1]
            assert "finite numbers of at most 1e+06" in said
        assert shard.state().inserted == 0
        chunks = [insert_message(good(i), slice(0, 2), 9, i) for i in range(4)]
        chunks[3] = insert_message(with_number("reward", 5e5, 3)(), slice(0, 2), 9, 3)
        assert talk(shard, "Insert", *chunks)[0] is grpc.StatusCode.OK
        stored = shard.state().size
        assert shard.stop() == 0
        shard.start("--max-abs-reward", "1e5").listening()
        assert 0 < shard.state().size < stored, "its files are judged by them, too"


def test_a_learner_judges_what_it_draws(tmp_path: Path) -> None:
    """A shard with wider bounds, as any program at its address may be one, ends no learner."""
    with shards(tmp_path, 1, directory=False) as (shard,):
        hostile = ShardedReplay(SPEC, [shard.address], ALPHA)
        tame = ShardedReplay(SPEC, [shard.address], ALPHA, bounds=Bounds(1.0, 1e6))
        with closing(hostile), closing(tame):
            stream = Stream(SPEC, 1, environments=2, seed=0)
            for number in range(12):
                chunk, _ = stream.chunk()
                if number % 2:
                    chunk.reward[:] = 1e6
                    chunk.priority[:] = MAX_PRIORITY
                else:
                    chunk.reward[:] = 1.0
                hostile.add(chunk)
            hostile.flush(WAIT_S)
            wait_for(lambda: tame.stats().sampleable > 0, "it has heard of them")
            draws = np.random.default_rng(1)
            largest = []
            for _ in range(20):
                sample = tame.request_sample(draws.random(8)).result(WAIT_S)
                largest.append(float(np.abs(sample.arrays["reward"]).max()))
                assert (sample.probability > 0).all()
            assert max(largest) <= 1.0
            refused = tame.stats().refused
            assert refused > 0
            tame.flush(WAIT_S)
            for _ in range(5):
                tame.request_sample(draws.random(8)).result(WAIT_S)
            assert tame.stats().refused == refused, "they are not drawn again"


def test_bounds_are_finite_and_not_negative(shard: ShardProcess) -> None:
    for bound in (np.nan, np.inf, -1.0):
        code, said = talk(shard, "Insert", max_abs_observation=bound)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "max_abs_observation: expected a finite number, 0 or more" in said


def test_priorities_of_a_true_learner_are_cut_and_not_refused(shard: ShardProcess) -> None:
    replay = ShardedReplay(SPEC, [shard.address], ALPHA)
    try:
        for number in range(3):
            chunk = good(number)
            replay.add(replace(chunk, priority=chunk.priority * np.float32(1e20)))
        sample = replay.request_sample(np.array([0.1, 0.9])).result(WAIT_S)
        replay.update_priorities(sample.keys, np.array([1e30, 1.0], np.float32))
        replay.flush(WAIT_S)
    finally:
        replay.close()
    assert 0 < shard.state().total_priority < 100 * MAX_PRIORITY


def test_files_with_wrong_numbers_lose_those_sequences_only(tmp_path: Path) -> None:
    """As a shard of an earlier release wrote them, with right checksums."""
    with shards(tmp_path, 1) as made:
        shard = made[0]
        assert shard.stop() == 0
        buffer = open_buffer(shard.directory, SPEC, 64, ALPHA)
        for number in range(8):
            chunk = good(number)
            if number == 2:
                chunk.reward[3, 0] = 3e38
            if number == 3:
                chunk.frames[0, 1, 0] = np.nan
            buffer.add(replace(chunk, version=float(number)))
        buffer.close()
        shard.start().listening()
        replay = ShardedReplay(SPEC, [shard.address], ALPHA)
        try:
            sample = replay.request_sample((np.arange(300) + 0.5) / 300).result(WAIT_S)
        finally:
            replay.close()
        assert (shard.state().size, shard.state().corrupt) == (14, 2)
        assert "2 sequences with numbers that are not allowed are dropped" in shard.process.said
        for array in (sample.arrays["reward"], sample.arrays["observation"]):
            assert np.abs(array).max() <= 1e6
        # Of chunk 3 one sequence was dropped, and the other one begins with a dropped one.
        assert set(sample.version) == {1.0, 2.0, 4.0, 5.0, 6.0, 7.0}
