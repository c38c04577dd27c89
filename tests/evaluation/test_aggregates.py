"""Median, mean and IQM over games, and their intervals, against slow references."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from seedbed.evaluation.aggregates import aggregate, intervals

# Three runs of five games. The aggregates and intervals of rliable 1.2.0 (50,000 resamples).
RUNS = {
    "a": [0.2, 0.4, 0.1],
    "b": [1.5, 1.1, 1.9],
    "c": [-0.1, 0.0, 0.3],
    "d": [3.0, 2.0, 2.6],
    "e": [0.9, 1.4, 1.0],
}
RLIABLE = (1.1, 1.0866666666666664, 0.9666666666666666)
RLIABLE_LOW = (0.9, 0.9533333333333334, 0.8111111111111111)
RLIABLE_HIGH = (1.3666666666666665, 1.22, 1.1111111111111112)


def slow(games: list[list[float]]) -> tuple[float, float, float]:
    means = [sum(runs) / len(runs) for runs in games]
    every = sorted(itertools.chain(*games))
    for _ in range(len(every) // 4):
        every = every[1:-1]
    return statistics.median(means), statistics.mean(means), statistics.mean(every)


def test_aggregates_are_those_of_a_slow_reference_and_of_rliable() -> None:
    assert aggregate(RUNS) == pytest.approx(RLIABLE)
    numbers = np.random.default_rng(3)
    for games in (1, 2, 3, 57):
        # Of unlike lengths, as of a suite whose last seeds are still missing.
        drawn = {str(at): numbers.normal(size=1 + at % 3).tolist() for at in range(games)}
        assert aggregate(drawn) == pytest.approx(slow(list(drawn.values())))


def test_intervals_are_those_of_rliable() -> None:
    found = intervals(RUNS)
    assert found is not None
    # Discrete: a step of one run's score over all of them.
    assert [one.low for one in found] == pytest.approx(RLIABLE_LOW, abs=0.015)
    assert [one.high for one in found] == pytest.approx(RLIABLE_HIGH, abs=0.015)


def test_intervals_are_percentiles_of_every_resample_there_is() -> None:
    runs = {"a": [0.0, 1.0, 5.0], "b": [2.0, 2.5, 9.0, -4.0]}
    strata = [itertools.product(one, repeat=len(one)) for one in runs.values()]
    every = [slow([list(a), list(b)]) for a, b in itertools.product(*strata)]
    assert len(every) == 3**3 * 4**4
    found = intervals(runs)
    assert found is not None
    for at, bounds in enumerate(found):
        # The exact quantiles lie between these of nearby levels.
        column = sorted(one[at] for one in every)
        low = np.quantile(column, [0.021, 0.029])
        high = np.quantile(column, [0.971, 0.979])
        assert low[0] - 1e-9 <= bounds.low <= low[1] + 1e-9
        assert high[0] - 1e-9 <= bounds.high <= high[1] + 1e-9


def test_one_run_of_a_game_gives_no_interval() -> None:
    assert intervals({**RUNS, "f": [1.0]}) is None
    assert intervals(RUNS) == intervals(RUNS), "the same table twice is the same"
