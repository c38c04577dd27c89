"""What shards and their clients refuse, and which learners they let in."""

from __future__ import annotations

import queue
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import trustme

from seedbed.replay.codec import spec_message
from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.v1 import replay_pb2 as wire
from tests.rpc.test_tls import certified, write
from tests.support.processes import free_port
from tests.support.raw_wire import metadata_of
from tests.support.replay_content import SPEC, check_whole, chunk
from tests.support.shard_process import ShardProcess, error_of, insert_message, shards
from tests.support.sharded_replay import WAIT_S, evenly, fill, hello, replay_of


@pytest.mark.slow
def test_over_mtls(tmp_path: Path) -> None:
    authority = trustme.CA()
    ours = write(tmp_path / "ours", authority, "localhost", "shard.pong.default.seedbed")
    learner = certified(write(tmp_path / "learner", authority, "learner.pong.default.seedbed"))
    actor = certified(write(tmp_path / "actor", authority, "actor.pong.default.seedbed"))
    strange = certified(write(tmp_path / "strange", trustme.CA(), "learner.pong.default.seedbed"))
    (tmp_path / "shard").mkdir()
    shard = ShardProcess(tmp_path / "shard")
    shard.address = f"localhost:{free_port()}"
    try:
        shard.start("--tls", str(ours)).listening()
        with replay_of([shard], credentials=learner) as replay:
            fill(replay, range(2), chunks=3)
            check_whole(SPEC, replay.request_sample(evenly(10)).result(WAIT_S))
        with (
            replay_of([shard], credentials=actor) as replay,
            pytest.raises(SeedbedError, match=r"is for the role learner, .* of role actor"),
        ):
            replay.request_sample(evenly(10)).result(WAIT_S)
        for stranger in (PLAIN, strange):
            with (
                replay_of([shard], credentials=stranger, timeout_s=1.0) as replay,
                pytest.raises(SeedbedError, match="no replay shard for 1 s"),
            ):
                replay.request_sample(evenly(10)).result(WAIT_S)
    finally:
        shard.end()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("change", [{"steps": 5}, {"state_size": 9}, {"lookahead": 2}])
def test_two_learners_with_different_specs(tmp_path: Path, change: dict[str, int]) -> None:
    with shards(tmp_path, 1) as made, replay_of(made) as replay:
        fill(replay, range(2), chunks=3)
        other = replace(SPEC, **change)
        with replay_of(made, other) as second:
            with pytest.raises(SeedbedError) as caught:
                second.request_sample(evenly(2)).result(WAIT_S)
            with pytest.raises(SeedbedError):
                second.add(chunk(other, 0, 0, 1))
        assert caught.value.code is ExitCode.REFUSED_BY_REPLAY
        said = str(caught.value)
        assert "sequences of 3 + 4 + 1 steps of uint8[6, 5], frame stack 2, state 3" in said
        assert "two learners with different specs" in said
        assert made[0].address in said
        check_whole(SPEC, replay.request_sample(evenly(20)).result(WAIT_S))
        # Nor after a restart, when the files say it.
        made[0].kill()
        made[0].start().listening()
        with replay_of(made, other) as third, pytest.raises(SeedbedError, match="two learners"):
            third.request_sample(evenly(2)).result(WAIT_S)


def test_another_exponent_is_refused(tmp_path: Path) -> None:
    with (
        shards(tmp_path, 1) as made,
        replay_of(made, alpha=0.5) as replay,
        pytest.raises(SeedbedError, match=r"exponent 0\.7, and the learner wants 0\.5"),
    ):
        replay.request_sample(evenly(1)).result(WAIT_S)


def test_bad_priorities_and_blocks_are_refused_here(tmp_path: Path) -> None:
    with shards(tmp_path, 1) as made, replay_of(made) as replay:
        fill(replay, range(1), chunks=3)
        sample = replay.request_sample(evenly(3)).result(WAIT_S)
        for bad in (np.nan, -1.0, np.inf):
            with pytest.raises(ValueError, match="must be finite and not negative"):
                replay.update_priorities(sample.keys, np.array([1, bad, 1], np.float32))
            with pytest.raises(ValueError, match="must be finite and not negative"):
                replay.add(chunk(SPEC, 0, 3, 2, np.array([1, bad], np.float32)))
        with pytest.raises(ValueError, match="frames of a chunk is"):
            replay.add(chunk(replace(SPEC, steps=5), 0, 3))
        replay.flush(WAIT_S)
        assert made[0].state().size == 9
        np.testing.assert_array_equal(
            replay.request_sample(evenly(3)).result(WAIT_S).probability, sample.probability
        )


def test_whatever_comes_over_the_wire_the_shard_lives(tmp_path: Path) -> None:
    own, old = hello(), hello(protocol_version=9, oldest_protocol_version=9)
    good = chunk(SPEC, 0, 0, 2)
    whole = insert_message(good, slice(0, 2), 1, 0)
    bad_shape = spec_message(SPEC)
    bad_shape.observation.dtype = "object"
    long_name = spec_message(replace(SPEC, environment="x" * 257))
    invalid, refused = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION
    two_bytes = wire.InsertRequest(environments=2, payload=b"ab").SerializeToString()
    three_bytes = wire.SampleRequest(uniform=b"abc").SerializeToString()
    no_priority = wire.PrioritizeRequest(key=bytes(8)).SerializeToString()
    cases: list[tuple[str, Any, list[bytes], grpc.StatusCode, str]] = [
        ("Insert", own, [b"\xff\xff\xff"], invalid, "Insert"),
        ("Insert", None, [whole], invalid, "metadata seedbed-hello-bin, not nothing"),
        ("Insert", b"\xff\xff", [whole], invalid, "not bytes that are none"),
        ("Insert", own, [whole[:-5]], invalid, "longer than its message"),
        ("Insert", own, [two_bytes], invalid, "2 came"),
        ("Sample", own, [three_bytes], invalid, "numbers of 8 bytes"),
        ("Prioritize", own, [no_priority], invalid, "priorities"),
        ("Insert", hello(spec=bad_shape), [], invalid, "cannot be"),
        ("Insert", hello(spec=long_name), [], invalid, "name of 257 characters: at most 256"),
        ("Insert", old, [], refused, "run the same release"),
    ]
    with shards(tmp_path, 1) as made:
        with replay_of(made) as replay:
            fill(replay, range(2), chunks=3)
        state = made[0].state()
        for name, first, messages, code, words in cases:
            with channels.channel(made[0].address) as channel:
                call: Any = channel.stream_stream(f"/seedbed.v1.Replay/{name}")
                got, said = error_of(
                    call(iter(messages), metadata=metadata_of(first), timeout=WAIT_S)
                )
                assert (got, words in said) == (code, True), f"{name}: {got} {said}"
        after = made[0].state()
        assert (after.size, after.total_priority) == (state.size, state.total_priority)
        with replay_of(made) as replay:
            check_whole(SPEC, replay.request_sample(evenly(20)).result(WAIT_S))


def test_two_shards_on_one_volume(tmp_path: Path) -> None:
    with shards(tmp_path, 1) as made, replay_of(made) as replay:
        fill(replay, range(1), chunks=3)
        (tmp_path / "other").mkdir()
        other = ShardProcess(tmp_path / "other")
        other.arguments[-1] = str(made[0].directory)
        other.start()
        assert other.process is not None
        assert other.process.wait() == ExitCode.REPLAY_FILES
        assert "is in use by process" in other.process.said


@pytest.mark.parametrize("directory", [True, False])
def test_a_learner_takes_over_an_empty_shard(tmp_path: Path, directory: bool) -> None:
    """A stranger's Hello, without a sequence, keeps no learner away; nobody drops sequences."""
    strange = spec_message(replace(SPEC, steps=SPEC.steps + 1))
    stranger, own = metadata_of(hello(spec=strange)), metadata_of(hello())
    with shards(tmp_path, 1, directory=directory) as made:
        with channels.channel(made[0].address) as channel:
            call: Any = channel.stream_stream("/seedbed.v1.Replay/Insert")
            opened = queue.SimpleQueue[Any]()
            open_call = call(iter(opened.get, None), metadata=stranger, timeout=WAIT_S)
            assert next(open_call)
            code, said = error_of(call(iter([]), metadata=own, timeout=WAIT_S))
            assert code == grpc.StatusCode.FAILED_PRECONDITION  # the stranger's stream is open
            opened.put(None)
            assert list(open_call) == []
        with replay_of(made) as replay:
            fill(replay, range(2), chunks=3)
        with channels.channel(made[0].address) as channel:
            call = channel.stream_stream("/seedbed.v1.Replay/Insert")
            code, said = error_of(call(iter([]), metadata=stranger, timeout=WAIT_S))
            assert code == grpc.StatusCode.FAILED_PRECONDITION
            assert "this shard holds" in said
        assert made[0].state().size > 0
