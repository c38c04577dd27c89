"""The service replay against real shards: `seedbed replay` processes behind unix sockets."""

from __future__ import annotations

import gc
import os
import queue
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import trustme
from numpy.typing import NDArray

from seedbed.replay.client.sample_request import SampleRequest
from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.codec import chunk_bytes, spec_message
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.v1 import replay_pb2 as wire
from tests.rpc.test_tls import certified, write
from tests.support.replay_content import SPEC, check_whole, chunk
from tests.support.shard_process import ALPHA, ShardProcess, error_of, insert_message, shards
from tests.support.waiting import wait_for

WAIT_S = 30.0


@pytest.fixture(params=["shared memory", "tcp"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How learners reach the shards of a test."""
    monkeypatch.setattr(ShardProcess, "over_tcp", request.param == "tcp")
    return str(request.param)


@contextmanager
def replay_of(
    made: list[ShardProcess], spec: SequenceSpec = SPEC, alpha: float = ALPHA, **options: Any
) -> Iterator[ShardedReplay]:
    replay = ShardedReplay(spec, [shard.address for shard in made], alpha, **options)
    try:
        yield replay
    finally:
        replay.close()


def all_up(replay: ShardedReplay, count: int) -> None:
    wait_for(lambda: replay.stats().healthy_shards == count, f"{count} shards are up")


def fill(replay: ShardedReplay, stream_ids: range, chunks: int, environments: int = 3) -> None:
    for number in range(chunks):
        for stream_id in stream_ids:
            replay.add(chunk(SPEC, stream_id, number, environments))
    replay.flush(WAIT_S)


def evenly(count: int) -> NDArray[np.float64]:
    return (np.arange(count) + 0.5) / count


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("count", [1, 3])
def test_what_went_in_comes_out(tmp_path: Path, count: int) -> None:
    with shards(tmp_path, count, capacity=100) as made, replay_of(made) as replay:
        all_up(replay, count)
        fill(replay, range(6), chunks=5)
        assert replay.stats().inserted == 6 * 5 * 3
        assert replay.stats().sampleable == 6 * (5 - SPEC.predecessors) * 3
        # Prefetching: several at once, and each is whole.
        futures = [
            replay.request_sample(evenly(300)),
            replay.request_sample(evenly(7)),
            replay.request_sample(evenly(300)),
        ]
        found = [check_whole(SPEC, future.result(WAIT_S)) for future in futures]
        assert set(found[0]) == {
            (stream_id, e, number)
            for stream_id in range(6) for e in range(3) for number in range(SPEC.predecessors, 5)
        }  # fmt: skip
        assert [len(one) for one in found] == [300, 7, 300]
        sizes = [shard.state().size for shard in made]
        assert sum(sizes) == 6 * 5 * 3
        assert min(sizes) > 0, "each has its part"


@pytest.mark.usefixtures("way")
def test_large_batches_come_in_several_messages(tmp_path: Path) -> None:
    spec = SequenceSpec(replace(SPEC.observation, shape=(128, 128)), steps=16, burn_in=8)
    with shards(tmp_path, 2) as made, replay_of(made, spec) as replay:
        all_up(replay, 2)
        for number in range(3):
            replay.add(chunk(spec, 1, number, 20))
        sample = replay.request_sample(evenly(64)).result(WAIT_S)
        assert sample.arrays["observation"].nbytes > 20 << 20
        check_whole(spec, sample)
        counted = replay.stats()
        assert counted.received_bytes > 20 << 20
        assert counted.sent_bytes > 3 * 20 * np.prod(spec.observation.shape)


def test_an_answer_keeps_its_memory_until_it_is_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that joins is slow here, and more answers come than the learner has places."""
    real = SampleRequest.fill

    def slow(self: SampleRequest, *arguments: Any) -> None:
        time.sleep(0.02)
        real(self, *arguments)

    monkeypatch.setattr(SampleRequest, "fill", slow)
    with shards(tmp_path, 1) as made, replay_of(made) as replay:
        fill(replay, range(6), chunks=4)
        random = np.random.default_rng(0)
        futures = [replay.request_sample(random.random(5)) for _ in range(40)]
        names: dict[int, Any] = {}
        for future in futures:
            sample = future.result(WAIT_S)
            for key, name in zip(sample.keys.tolist(), check_whole(SPEC, sample), strict=True):
                assert names.setdefault(key, name) == name, "a key has its own sequence"
        assert len(names) > 20


def test_the_memory_of_a_batch_is_used_again(tmp_path: Path) -> None:
    """Fresh memory costs more page faults than its copy, and nothing waits for a collection."""
    with shards(tmp_path, 1) as made, replay_of(made) as replay:
        fill(replay, range(2), chunks=4)
        gc.collect()
        gc.disable()
        try:
            places = set()
            for _ in range(30):
                sample = replay.request_sample(evenly(64)).result(WAIT_S)
                places.add(sample.arrays["observation"].ctypes.data)
                del sample
        finally:
            gc.enable()
        assert len(places) <= 4
        assert len(replay.router._samples) == 0


def chi_square(counts: NDArray[Any], expected: NDArray[np.float64]) -> float:
    """How many standard deviations χ² lies above its mean."""
    keep = expected > 5
    statistic = float(((counts - expected)[keep] ** 2 / expected[keep]).sum())
    freedom = int(keep.sum()) - 1
    return (statistic - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("count", [2, 3])
def test_the_distribution_is_that_of_one_replay(tmp_path: Path, count: int) -> None:
    random = np.random.default_rng(count)
    with shards(tmp_path, count) as made, replay_of(made) as replay:
        all_up(replay, count)
        fill(replay, range(8), chunks=4)
        sample = replay.request_sample(evenly(2000)).result(WAIT_S)
        seen = dict(zip(check_whole(SPEC, sample), sample.keys.tolist(), strict=True))
        names = sorted(seen)
        assert len(names) == 8 * 3 * (4 - SPEC.predecessors)
        priority = random.uniform(0.1, 10, len(names)).astype(np.float32)
        replay.update_priorities(np.array([seen[name] for name in names]), priority)
        replay.flush(WAIT_S)
        draws = 40_000
        counts = np.zeros(len(names))
        place = {seen[name]: index for index, name in enumerate(names)}
        exact = priority.astype(np.float64) ** ALPHA
        exact /= exact.sum()
        for _ in range(20):
            sample = replay.request_sample(random.random(draws // 20)).result(WAIT_S)
            found = np.array([place[key] for key in sample.keys.tolist()])
            np.add.at(counts, found, 1)
            np.testing.assert_allclose(sample.probability, exact[found], rtol=1e-6)
        assert chi_square(counts, draws * exact) < 4
        for wrong in (ALPHA - 0.2, ALPHA + 0.2):
            other = priority.astype(np.float64) ** wrong
            assert chi_square(counts, draws * other / other.sum()) > 8, "this test shows nothing"


@pytest.mark.usefixtures("way")
def test_late_priorities_are_counted_and_change_nothing(tmp_path: Path) -> None:
    with shards(tmp_path, 2, capacity=24) as made, replay_of(made) as replay:
        all_up(replay, 2)
        fill(replay, range(4), chunks=3)
        old = replay.request_sample(evenly(40)).result(WAIT_S).keys
        fill(replay, range(10, 12), chunks=12)
        replay.update_priorities(old, np.full(40, 1000, np.float32))
        replay.flush(WAIT_S)
        assert replay.stats().stale_updates == 40, "all of them arrived"
        sample = replay.request_sample(evenly(40)).result(WAIT_S)
        np.testing.assert_allclose(sample.probability, sample.probability[0], rtol=1e-6)
        assert min(stream_id for stream_id, _, _ in check_whole(SPEC, sample)) >= 10
        assert sum(shard.state().stale_updates for shard in made) == 40


def test_keys_that_a_crash_gave_away_again(tmp_path: Path) -> None:
    """The machine goes down: older files are back, and the newest keys name other sequences."""
    with shards(tmp_path, 1) as made, replay_of(made) as replay:
        (shard,) = made
        fill(replay, range(1), chunks=3)
        kept = replay.request_sample(evenly(6)).result(WAIT_S)
        assert shard.stop() == 0
        shutil.copytree(shard.directory, tmp_path / "old")
        shard.start().listening()
        all_up(replay, 1)
        fill(replay, range(1, 2), chunks=4)
        late = replay.request_sample(evenly(200)).result(WAIT_S)
        assert {stream_id for stream_id, _, _ in check_whole(SPEC, late)} == {0, 1}
        shard.kill()
        shutil.rmtree(shard.directory)
        shutil.copytree(tmp_path / "old", shard.directory)
        shard.start().listening()
        all_up(replay, 1)
        fill(replay, range(7, 8), chunks=4)  # on the keys of stream_id 1
        replay.update_priorities(late.keys, np.full(200, 50, np.float32))
        replay.update_priorities(kept.keys, np.full(6, 50, np.float32))
        replay.flush(WAIT_S)
        # The shard has lost the newest incarnation; the one before is in its files.
        assert replay.stats().stale_updates == 200
        sample = replay.request_sample(evenly(500)).result(WAIT_S)
        stream_ids = np.array([stream_id for stream_id, _, _ in check_whole(SPEC, sample)])
        assert set(stream_ids) == {0, 7}
        ratio = sample.probability[stream_ids == 0][0] / sample.probability[stream_ids == 7][0]
        assert ratio == pytest.approx(50**ALPHA)


def test_keys_of_sequences_that_were_damaged(tmp_path: Path) -> None:
    """As above, with the incarnation in the files: its last keys are assigned again."""
    with shards(tmp_path, 1) as made, replay_of(made) as replay:
        (shard,) = made
        fill(replay, range(2), chunks=4)
        late = replay.request_sample(evenly(120)).result(WAIT_S)
        shard.kill()
        frames = np.memmap(shard.directory / "frames.bin", np.uint8, "r+").reshape(64, -1)
        frames[15:24, 7] ^= 1  # keys 15 to 23: half of those that can be drawn
        del frames
        shard.start().listening()
        assert shard.state().corrupt == 9
        all_up(replay, 1)
        fill(replay, range(5, 6), chunks=5)
        replay.update_priorities(late.keys, np.full(120, 50, np.float32))
        replay.flush(WAIT_S)
        lost = int(np.count_nonzero(late.keys & 0xFFFF >= 15))
        assert 0 < lost < 120
        assert replay.stats().stale_updates == lost
        sample = replay.request_sample(evenly(500)).result(WAIT_S)
        high = sample.probability > sample.probability.min() * 2
        for (stream_id, _, _), raised in zip(check_whole(SPEC, sample), high, strict=True):
            assert raised == (stream_id < 2)


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


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with shards(tmp_path, 2) as made, replay_of(made) as replay:
        with pytest.raises(ValueError, match="nothing can be drawn: 0 of 128 items"):
            replay.request_sample(evenly(4)).result(WAIT_S)
        replay.add(chunk(SPEC, 0, 0, 2))
        with pytest.raises(ValueError, match="nothing can be drawn"):
            replay.request_sample(evenly(4)).result(WAIT_S)
        fill(replay, range(1), chunks=3)  # and goes on
        check_whole(SPEC, replay.request_sample(evenly(4)).result(WAIT_S))


def test_a_shard_that_takes_nothing_holds_up_the_learner(tmp_path: Path) -> None:
    window = 20 * chunk_bytes(SPEC)
    with shards(tmp_path, 1) as made, replay_of(made, window_bytes=window) as replay:
        fill(replay, range(1), chunks=3)
        assert made[0].process is not None
        made[0].process.send(signal.SIGSTOP)
        given: list[int] = []

        def give() -> None:
            for number in range(3, 40):
                replay.add(chunk(SPEC, 0, number, 3))
                given.append(number)

        thread = threading.Thread(target=give)
        thread.start()
        wait_for(
            lambda: replay.window.in_flight > window - 3 * chunk_bytes(SPEC), "the window is full"
        )
        thread.join(0.5)
        assert thread.is_alive()
        assert replay.window.in_flight <= window
        assert len(given) <= 7
        made[0].process.send(signal.SIGCONT)
        thread.join(WAIT_S)
        assert not thread.is_alive()
        replay.flush(WAIT_S)
        assert replay.stats().inserted == 3 * 40, "none was sent twice"
        check_whole(SPEC, replay.request_sample(evenly(50)).result(WAIT_S))


@pytest.mark.usefixtures("way")
def test_kill_9_of_one_shard_of_two(tmp_path: Path) -> None:
    with shards(tmp_path, 2, capacity=600) as made, replay_of(made) as replay:
        all_up(replay, 2)
        fill(replay, range(4), chunks=6, environments=4)
        before = made[1].state()
        assert before.size > 0
        # In mid-run: inserting and prefetching all the time.
        ending, failures = threading.Event(), list[BaseException]()
        number, batches = [6], [0]

        def train() -> None:
            random = np.random.default_rng(5)
            try:
                futures = [replay.request_sample(random.random(64)) for _ in range(3)]
                while not ending.is_set():
                    for stream_id in range(4):
                        replay.add(chunk(SPEC, stream_id, number[0], 4))
                    number[0] += 1
                    sample = futures.pop(0).result(WAIT_S)
                    check_whole(SPEC, sample)
                    replay.update_priorities(sample.keys, np.ones(64, np.float32))
                    futures.append(replay.request_sample(random.random(64)))
                    batches[0] += 1
                for future in futures:
                    check_whole(SPEC, future.result(WAIT_S))
            except BaseException as error:
                failures.append(error)

        def goes_on(more: int = 5) -> None:
            reached = batches[0] + more
            wait_for(lambda: batches[0] >= reached or failures, "more batches")
            assert not failures, failures

        thread = threading.Thread(target=train)
        thread.start()
        try:
            goes_on()
            made[1].kill()
            goes_on(10)
            assert replay.stats().healthy_shards == 1
            made[1].start().listening()
            after = made[1].state()
            assert after.size >= before.size, "its contents are back"
            assert after.corrupt == 0
            all_up(replay, 2)
            inserted = made[1].state().inserted
            goes_on(10)
            wait_for(lambda: made[1].state().inserted > inserted, "it gets its part again")
            wait_for(lambda: made[1].state().sampled > 0, "it is drawn from again")
        finally:
            ending.set()
            thread.join(WAIT_S)
        assert not failures, failures
        replay.flush(WAIT_S)
        # Nothing is lost: each sequence was stored, some perhaps twice.
        assert replay.stats().inserted == 4 * 4 * number[0]


@pytest.mark.usefixtures("way")
def test_what_a_shard_sent_before_it_died_is_put_in_its_place(tmp_path: Path) -> None:
    with shards(tmp_path, 2) as made, replay_of(made) as replay:
        all_up(replay, 2)
        fill(replay, range(4), chunks=4)
        hold = threading.Event()
        replay.router._joiner.submit(hold.wait, WAIT_S)  # the thread that joins batches is late
        future = replay.request_sample(evenly(30))
        wait_for(
            lambda: replay.router._samples and not any(client.busy for client in replay.clients),
            "they answer",
        )
        made[1].kill()
        wait_for(lambda: replay.stats().healthy_shards == 1, "it is left out")
        hold.set()
        check_whole(SPEC, future.result(5))
        replay.flush(WAIT_S)


def test_kill_9_of_both_and_back(tmp_path: Path) -> None:
    with shards(tmp_path, 2) as made, replay_of(made) as replay:
        all_up(replay, 2)
        fill(replay, range(4), chunks=4)
        sampleable = replay.stats().sampleable
        for shard in made:
            shard.kill()
        wait_for(lambda: replay.stats().healthy_shards == 0, "both are left out")
        replay.add(chunk(SPEC, 0, 4, 3))  # waits for one
        future = replay.request_sample(evenly(30))
        assert not future.done()
        for shard in made:
            shard.start().listening()
        check_whole(SPEC, future.result(WAIT_S))
        all_up(replay, 2)
        replay.flush(WAIT_S)
        assert replay.stats().inserted == 4 * 4 * 3 + 3
        assert sum(shard.state().sampleable for shard in made) == sampleable


@pytest.mark.usefixtures("way")
def test_a_learner_that_comes_back_finds_everything(tmp_path: Path) -> None:
    with shards(tmp_path, 2) as made:
        with replay_of(made) as replay:
            all_up(replay, 2)
            fill(replay, range(4), chunks=4)
            sampleable = replay.stats().sampleable
        with replay_of(made) as replay:
            all_up(replay, 2)
            assert replay.stats().sampleable == sampleable
            check_whole(SPEC, replay.request_sample(evenly(60)).result(WAIT_S))


def test_no_shard_at_all(tmp_path: Path) -> None:
    addresses = [f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"]
    replay = ShardedReplay(SPEC, addresses, ALPHA, timeout_s=1.0)
    try:
        with pytest.raises(SeedbedError) as caught:
            replay.request_sample(evenly(2)).result(WAIT_S)
        assert caught.value.code is ExitCode.REPLAY_UNREACHABLE
        assert "no replay shard for 1 s" in str(caught.value)
        assert all(address in str(caught.value) for address in addresses)
        with pytest.raises(SeedbedError):
            replay.add(chunk(SPEC, 0, 0))
    finally:
        replay.close()


def test_blocks_that_no_shard_took_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replay = ShardedReplay(SPEC, [f"unix:{tmp_path}/a"], ALPHA, timeout_s=0.5)
    try:
        replay.add(chunk(SPEC, 0, 0, 3))
        wait_for(lambda: replay.router.failure is not None, "the replay has given up")
        wait_for(lambda: "3 sequences were given" in caplog.text, "three sequences are counted")
        with pytest.raises(SeedbedError, match="no replay shard"):
            replay.add(chunk(SPEC, 0, 1, 3))
    finally:
        replay.close()


@pytest.mark.usefixtures("way")
def test_a_shard_that_answers_nothing_is_left_out(tmp_path: Path) -> None:
    with shards(tmp_path, 2) as made, replay_of(made, reply_timeout_s=5.0) as replay:
        all_up(replay, 2)
        fill(replay, range(4), chunks=4)
        process = made[0].process
        assert process is not None
        process.send(signal.SIGSTOP)
        future = replay.request_sample(evenly(40))
        check_whole(SPEC, future.result(WAIT_S))
        wait_for(lambda: replay.stats().healthy_shards == 1, "one is left out")
        process.send(signal.SIGCONT)
        all_up(replay, 2)
        check_whole(SPEC, replay.request_sample(evenly(40)).result(WAIT_S))


def test_sigterm_ends_well_and_keeps_everything(tmp_path: Path) -> None:
    with shards(tmp_path, 1) as made, replay_of(made) as replay:
        fill(replay, range(3), chunks=4)
        sampleable = made[0].state().sampleable
        assert made[0].stop() == 0
        wait_for(lambda: replay.stats().healthy_shards == 0, "it is left out")
        made[0].start().listening()
        assert made[0].state().sampleable == sampleable


def test_in_memory_nothing_survives(tmp_path: Path) -> None:
    with shards(tmp_path, 1, directory=False) as made, replay_of(made) as replay:
        fill(replay, range(2), chunks=4)
        keys = replay.request_sample(evenly(10)).result(WAIT_S).keys
        made[0].kill()
        made[0].start().listening()
        fill(replay, range(2), chunks=4)
        replay.update_priorities(keys, np.ones(10, np.float32))
        replay.flush(WAIT_S)
        assert replay.stats().stale_updates == 10
        check_whole(SPEC, replay.request_sample(evenly(10)).result(WAIT_S))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def test_metrics_and_status(tmp_path: Path) -> None:
    (tmp_path / "shard").mkdir()
    shard = ShardProcess(tmp_path / "shard")
    shard.metrics_port = free_port()
    try:
        shard.start().listening()
        assert shard.get("/healthz") == "ok\n"
        assert shard.get("/readyz") == "ok\n"
        with replay_of([shard]) as replay:
            fill(replay, range(3), chunks=4)
            replay.request_sample(evenly(25)).result(WAIT_S)
            lines = shard.get("/metrics").splitlines()
            for line in (
                "capacity 64.0", "size 36.0", "sampleable 18.0", "inserts_total 36.0",
                "samples_total 25.0", "sample_age_seconds_count 25.0", "stale_updates_total 0.0",
                "corrupt_total 0.0", "learners 1.0", "total_priority 18.0",
            ):  # fmt: skip
                assert f"seedbed_replay_shard_{line}" in lines
            status = shard.status()
            assert (status["size"], status["exponent"]) == (36, ALPHA)
            assert status["spec"]["steps"] == SPEC.steps
    finally:
        shard.end()


def hello(**changes: Any) -> wire.ReplayHello:
    fields = {"protocol_version": 1, "oldest_protocol_version": 1, "learner": "test",
              "spec": spec_message(SPEC), "priority_exponent": ALPHA}  # fmt: skip
    return wire.ReplayHello(**{**fields, **changes})


def test_whatever_comes_over_the_wire_the_shard_lives(tmp_path: Path) -> None:
    insert = wire.InsertRequest(hello=hello()).SerializeToString()
    sample = wire.SampleRequest(hello=hello()).SerializeToString()
    prioritize = wire.PrioritizeRequest(hello=hello()).SerializeToString()
    good = chunk(SPEC, 0, 0, 2)
    whole = insert_message(good, slice(0, 2), 1, 0)
    nan = replace(good, priority=np.array([1, np.nan], np.float32))
    bad_shape = spec_message(SPEC)
    bad_shape.observation.dtype = "object"
    long_name = spec_message(replace(SPEC, environment="x" * 257))
    invalid, refused = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION
    cases: list[tuple[str, list[bytes], grpc.StatusCode, str]] = [
        ("Insert", [b"\xff\xff\xff"], invalid, "Insert"),
        ("Insert", [], invalid, "nothing instead of hello"),
        ("Insert", [whole], invalid, "hello must come first"),
        ("Insert", [insert, whole[:-5]], invalid, "longer than its message"),
        ("Insert", [insert, insert_message(nan, slice(0, 2), 1, 0)], invalid,
         "priority: expected 0 to 1e+09, received nan at [1]"),
        ("Insert", [insert, wire.InsertRequest(environments=2, payload=b"ab").SerializeToString()],
         invalid, "2 came"),
        ("Sample", [sample, wire.SampleRequest(uniform=b"abc").SerializeToString()], invalid,
         "numbers of 8 bytes"),
        ("Sample", [sample, wire.SampleRequest(uniform=np.array([1.0]).tobytes())
                    .SerializeToString()], invalid, r"[0, 1)"),
        ("Prioritize", [prioritize, wire.PrioritizeRequest(
            key=bytes(8), priority=np.array([-1], np.float32).tobytes()).SerializeToString()],
         invalid, "priority: expected 0 to 1e+09, received -1"),
        ("Prioritize", [prioritize, wire.PrioritizeRequest(key=bytes(8)).SerializeToString()],
         invalid, "priorities"),
        ("Insert", [wire.InsertRequest(hello=hello(spec=bad_shape)).SerializeToString()], invalid,
         "cannot be"),
        ("Insert", [wire.InsertRequest(hello=hello(spec=long_name)).SerializeToString()], invalid,
         "name of 257 characters: at most 256"),
        ("Insert", [wire.InsertRequest(hello=hello(protocol_version=9, oldest_protocol_version=9))
                    .SerializeToString()], refused, "run the same release"),
    ]  # fmt: skip
    with shards(tmp_path, 1) as made:
        with replay_of(made) as replay:
            fill(replay, range(2), chunks=3)
        state = made[0].state()
        for name, messages, code, words in cases:
            with channels.channel(made[0].address) as channel:
                call: Any = channel.stream_stream(f"/seedbed.v1.Replay/{name}")
                got, said = error_of(call(iter(messages), timeout=WAIT_S))
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


def test_what_cannot_fit_is_refused(tmp_path: Path) -> None:
    with (
        shards(tmp_path / "disk", 1, capacity=10**12) as disk,
        shards(tmp_path / "memory", 1, capacity=10**9, directory=False) as memory,
    ):
        for made, words in ((disk, "1000000000000 sequences"), (memory, "of memory")):
            with replay_of(made) as replay, pytest.raises(SeedbedError, match=words) as caught:
                replay.request_sample(evenly(1)).result(WAIT_S)
            assert caught.value.code is ExitCode.REFUSED_BY_REPLAY
            assert "hold at most" in str(caught.value)


def test_memory_of_a_shard_stays_bounded(tmp_path: Path) -> None:
    """A learner that reads no samples is not waited for with all of them in memory."""
    spec = SequenceSpec(replace(SPEC.observation, shape=(128, 128)), steps=16, burn_in=8)
    with shards(tmp_path, 1) as made:
        with replay_of(made, spec) as replay:
            for number in range(3):
                replay.add(chunk(spec, 1, number, 8))
            replay.request_sample(evenly(64)).result(WAIT_S)
        assert made[0].process is not None
        pid = made[0].process.pid
        before, page = resident(pid), os.sysconf("SC_PAGE_SIZE")
        with channels.channel(made[0].address) as channel:
            call: Any = channel.stream_stream("/seedbed.v1.Replay/Sample")
            first = wire.SampleRequest(hello=hello(spec=spec_message(spec))).SerializeToString()
            ask = wire.SampleRequest(request=1, uniform=evenly(20_000).tobytes())
            replies = call(iter([first, ask.SerializeToString()]), timeout=WAIT_S)
            next(replies)
            next(replies)  # of 8 GB; then the client does not read
            seen = [made[0].state().sampled]

            def rests() -> bool:  # twice the same, with time between: it draws no more
                seen.append(made[0].state().sampled)
                return seen[-2] == seen[-1]

            wait_for(rests, "it has stopped drawing", every_s=0.3)
            assert seen[-1] < 1_000
            assert (resident(pid) - before) * page < 400 << 20
            replies.cancel()


def resident(pid: int) -> int:
    """Pages of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


@pytest.mark.parametrize("directory", [True, False])
def test_a_learner_takes_over_an_empty_shard(tmp_path: Path, directory: bool) -> None:
    """A stranger's Hello, without a sequence, keeps no learner away; nobody drops sequences."""
    strange = spec_message(replace(SPEC, steps=SPEC.steps + 1))
    stranger = wire.InsertRequest(hello=hello(spec=strange)).SerializeToString()
    with shards(tmp_path, 1, directory=directory) as made:
        with channels.channel(made[0].address) as channel:
            call: Any = channel.stream_stream("/seedbed.v1.Replay/Insert")
            opened = queue.SimpleQueue[Any]()
            opened.put(stranger)
            open_call = call(iter(opened.get, None), timeout=WAIT_S)
            assert next(open_call)
            own = wire.InsertRequest(hello=hello()).SerializeToString()
            code, said = error_of(call(iter([own]), timeout=WAIT_S))
            assert code == grpc.StatusCode.FAILED_PRECONDITION  # the stranger's stream is open
            opened.put(None)
            assert list(open_call) == []
        with replay_of(made) as replay:
            fill(replay, range(2), chunks=3)
        with channels.channel(made[0].address) as channel:
            call = channel.stream_stream("/seedbed.v1.Replay/Insert")
            code, said = error_of(call(iter([stranger]), timeout=WAIT_S))
            assert code == grpc.StatusCode.FAILED_PRECONDITION
            assert "this shard holds" in said
        assert made[0].state().size > 0
