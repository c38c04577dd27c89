"""Rate limiter: the ratio holds, and the two sides never wait for each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seedbed.config import load_experiment
from seedbed.config.learner import Replay
from seedbed.replay.rate_limiter import RateLimiter

TABLE_1 = Path(__file__).parents[2] / "experiments/table1"


def limiter_of(ratio: float, batch_steps: int, minimum: int, ahead: float) -> RateLimiter:
    settings = Replay(ratio=ratio, min_size=minimum, ratio_tolerance_batches=ahead)
    return RateLimiter(settings, batch_steps)


@pytest.mark.parametrize("seed", range(20))
def test_the_two_sides_never_both_wait_and_the_ratio_holds(seed: int) -> None:
    """Blocks of any size, also larger than a batch, and training whenever it may."""
    random = np.random.default_rng(seed)
    ratio = float(random.choice([0.01, 0.75, 1.0, 16.0, 128.0]))
    batch_steps = int(random.integers(1, 5000))
    ahead = float(random.choice([1.0, 1.5, 4.0]))
    limiter = limiter_of(ratio, batch_steps, minimum=10, ahead=ahead)
    since, trained, largest = 0, 0, 0
    for turn in range(2000):
        greedy = random.random() < 0.9  # else one side is away for a while
        assert limiter.may_insert() or limiter.may_train()
        if limiter.may_insert() and (greedy or random.random() < 0.5):
            steps = int(random.integers(1, 4000))
            since += steps if limiter.is_warm else 0
            largest = max(largest, steps)
            limiter.on_insert(steps, sampleable=turn)
        while greedy and limiter.may_train():
            limiter.on_train()
            trained += batch_steps
        assert limiter.is_warm == (turn >= 10) or not trained
        # Behind by less than a batch (the first comes for nothing), ahead by what may wait.
        over = ratio * since - (trained - batch_steps)
        assert over > -1e-6 * batch_steps - 1e-6 or not trained
        assert over <= ahead * batch_steps + ratio * largest + 1e-6 * (1 + ratio * since)
        if greedy and trained:
            assert over < batch_steps + 1e-6 * (1 + ratio * since)
    assert trained


def test_nothing_is_trained_before_the_minimum_and_then_at_once() -> None:
    limiter = limiter_of(0.75, 100, minimum=8, ahead=4)
    for sampleable in (0, 3, 7):
        limiter.on_insert(10_000, sampleable)
        assert limiter.may_insert()
        assert not limiter.may_train()
    limiter.on_insert(10_000, 8)
    assert limiter.may_train()
    limiter.on_train()
    assert not limiter.may_train(), "the steps before the minimum are not made up for"


def test_actors_wait_while_training_is_behind() -> None:
    limiter = limiter_of(0.5, 100, minimum=1, ahead=2)
    limiter.on_insert(1, 1)  # credit for the first batch: 100
    limiter.on_insert(200, 2)
    assert limiter.may_insert()
    assert limiter.credit == 200
    limiter.on_insert(2, 2)
    assert not limiter.may_insert()
    limiter.on_train()
    assert limiter.may_insert()


@pytest.mark.parametrize(
    ("row", "frames_per_second", "updates_per_second"),
    [("atari-8-cores", 260_000, 9.5), ("atari-8-cores-1200", 440_000, 16)],
)
def test_a_row_of_table_1_trains_at_the_papers_rate(
    row: str, frames_per_second: int, updates_per_second: float
) -> None:
    """Section 4.3 of the SEED paper: frames and updates a second of both rows of R2D2."""
    experiment = load_experiment(TABLE_1 / f"{row}.yaml")
    learner, replay = experiment.learner, experiment.learner.replay
    steps = frames_per_second / experiment.environment.atari.frame_skip
    batch_steps = learner.batch_size * learner.unroll_length
    assert steps * replay.ratio / batch_steps == pytest.approx(updates_per_second, rel=0.01)
    # The limiter gives as many in ten seconds, in chunks of 32 sequences.
    limiter, updates = limiter_of(replay.ratio, batch_steps, minimum=1, ahead=4), 0
    limiter.on_insert(0, 1)
    chunk = 32 * learner.unroll_length
    for _ in range(round(10 * steps / chunk)):
        limiter.on_insert(chunk, 1)
        while limiter.may_train():
            limiter.on_train()
            updates += 1
    assert updates == pytest.approx(10 * updates_per_second, rel=0.02)
