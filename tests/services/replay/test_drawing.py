"""What learners draw from real shards: whole sequences, by the distribution of one replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.replay.sequence import SequenceSpec
from tests.support.replay_content import SPEC, check_whole, chunk
from tests.support.shard_process import ALPHA, shards
from tests.support.sharded_replay import WAIT_S, all_up, evenly, fill, replay_of


@pytest.mark.slow_after(1)
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


@pytest.mark.slow_after(1)
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


def chi_square(counts: NDArray[Any], expected: NDArray[np.float64]) -> float:
    """How many standard deviations χ² lies above its mean."""
    keep = expected > 5
    statistic = float(((counts - expected)[keep] ** 2 / expected[keep]).sum())
    freedom = int(keep.sum()) - 1
    return (statistic - freedom) / np.sqrt(2 * freedom)


@pytest.mark.slow
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


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    with shards(tmp_path, 2) as made, replay_of(made) as replay:
        with pytest.raises(ValueError, match="nothing can be drawn: 0 of 128 items"):
            replay.request_sample(evenly(4)).result(WAIT_S)
        replay.add(chunk(SPEC, 0, 0, 2))
        with pytest.raises(ValueError, match="nothing can be drawn"):
            replay.request_sample(evenly(4)).result(WAIT_S)
        fill(replay, range(1), chunks=3)  # and goes on
        check_whole(SPEC, replay.request_sample(evenly(4)).result(WAIT_S))
