"""Memory of batches in the learner, and of shards: used again, and bounded."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.replay.client.sample_request import SampleRequest
from seedbed.replay.codec import spec_message
from seedbed.replay.sequence import SequenceSpec
from seedbed.rpc import channels
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.v1 import replay_pb2 as wire
from tests.support.raw_wire import metadata_of
from tests.support.replay_content import SPEC, check_whole, chunk
from tests.support.shard_process import shards
from tests.support.sharded_replay import WAIT_S, evenly, fill, hello, replay_of
from tests.support.waiting import wait_for


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


@pytest.mark.slow
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
            metadata = metadata_of(hello(spec=spec_message(spec)))
            ask = wire.SampleRequest(request=1, uniform=evenly(20_000).tobytes())
            replies = call(iter([ask.SerializeToString()]), metadata=metadata, timeout=WAIT_S)
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
