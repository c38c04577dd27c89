"""Shards that are slow, silent, killed or stopped, and learners that go on without them."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from seedbed.replay.client.sharded import ShardedReplay
from seedbed.replay.codec import chunk_bytes
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from tests.support.replay_content import SPEC, check_whole, chunk
from tests.support.shard_process import ALPHA, shards
from tests.support.sharded_replay import WAIT_S, all_up, evenly, fill, replay_of
from tests.support.waiting import wait_for


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


@pytest.mark.slow_after(1)
@pytest.mark.usefixtures("way")
def test_kill_9_of_one_shard_of_two_and_of_both_loses_no_sequence(tmp_path: Path) -> None:
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
            for shard in made:
                shard.kill()
            wait_for(lambda: replay.stats().healthy_shards == 0, "both are left out")
            for shard in made:
                shard.start().listening()
            goes_on(10)
        finally:
            ending.set()
            thread.join(WAIT_S)
        assert not failures, failures
        replay.flush(WAIT_S)
        # Nothing is lost: each sequence was stored, some perhaps twice.
        assert replay.stats().inserted == 4 * 4 * number[0]


@pytest.mark.slow_after(1)
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


@pytest.mark.slow
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
