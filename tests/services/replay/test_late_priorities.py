"""Priorities for sequences that a shard has overwritten, lost or never had."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.replay_content import SPEC, check_whole
from tests.support.shard_process import ALPHA, shards
from tests.support.sharded_replay import WAIT_S, all_up, evenly, fill, replay_of


@pytest.mark.slow_after(1)
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


@pytest.mark.slow
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
