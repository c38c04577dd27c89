"""Statistics of seeds against slow references, and against a known truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from seedbed.sets.statistics import (
    LEAST_RESAMPLED,
    difference_p,
    expected_best,
    holm,
    improvement,
    mean_interval,
    median_time,
    summary,
    times_p,
)

SETS = 2000


def t_tail(statistic: float, freedom: float) -> float:
    """Both tails of Student's t, by the trapezoid rule on its density."""
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    x = np.linspace(0, abs(statistic), 200_001)
    density = scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2)
    return 1 - 2 * float(np.trapezoid(density, x))


def test_an_interval_is_students() -> None:
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval is not None
    half = 2.776445 * math.sqrt(2.5 / 5)  # t of 4 degrees of freedom, from a printed table
    assert interval == pytest.approx((3 - half, 3 + half), rel=1e-6)
    assert mean_interval([1.0, 2.0]) is None
    assert mean_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


def test_a_difference_is_welchs() -> None:
    one, other = [1.0, 2.5, 3.0, 4.2], [2.0, 9.0, 7.0, 4.0, 6.5]
    a, b = np.var(one, ddof=1) / 4, np.var(other, ddof=1) / 5
    statistic = (np.mean(one) - np.mean(other)) / math.sqrt(a + b)
    freedom = (a + b) ** 2 / (a**2 / 3 + b**2 / 4)
    assert difference_p(one, other) == pytest.approx(t_tail(statistic, freedom), abs=1e-6)
    assert difference_p(one, other[:2]) is None
    assert difference_p([1.0] * 3, [1.0] * 3) == 1
    assert difference_p([1.0] * 3, [2.0] * 3) == 0


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_an_interval_holds_the_truth_as_often_as_it_claims(seeds: int) -> None:
    draws = np.random.default_rng(seeds).normal(7, 3, (SETS, seeds))
    found = [mean_interval(list(row)) for row in draws]
    held = sum(one is not None and one.low <= 7 <= one.high for one in found)
    assert held >= 0.93 * SETS


def test_noise_is_seldom_taken_for_a_difference_and_a_difference_is_seen() -> None:
    draws = np.random.default_rng(1).normal(0, 1, (SETS, 10))
    different = 0
    for row in draws:  # two halves of ten seeds of one setting
        p = difference_p(list(row[:5]), list(row[5:]))
        assert p is not None
        different += p < 0.05
    assert different <= 0.06 * SETS
    seen = sum((difference_p(list(row[:5]), list(row[5:] + 3)) or 0) < 0.05 for row in draws)
    assert seen >= 0.9 * SETS


def test_noise_is_seldom_taken_for_a_difference_of_times() -> None:
    random = np.random.default_rng(2)
    different = seen = 0
    for _ in range(SETS):
        times = random.lognormal(0, 0.3, 10)
        pairs = [(min(time, 1.3), time < 1.3) for time in times]  # some are not reached
        p = times_p(pairs[:5], pairs[5:])
        assert p is not None
        different += p < 0.05
        slow = [(time * math.exp(0.9), True) for time in times[5:]]
        seen += (times_p([(time, True) for time in times[:5]], slow) or 0) < 0.05
    assert different <= 0.06 * SETS
    assert seen >= 0.9 * SETS


def test_holm_is_its_definition() -> None:
    found = [0.01, 0.04, 0.03, 0.005, 0.9]
    ordered = sorted(found)
    wanted = [
        max(min(1.0, (5 - rank) * ordered[rank]) for rank in range(ordered.index(p) + 1))
        for p in found
    ]
    assert holm(found) == pytest.approx(wanted)
    assert holm([]) == []


def test_improvement_counts_pairs() -> None:
    one, other = [1.0, 2.0, 3.0], [2.0, 2.0, 0.0, 5.0]
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in one for b in other)
    assert improvement(one, other) == wins / 12


def test_a_median_time_is_that_of_the_kaplan_meier_curve() -> None:
    assert median_time([1, 2, 3, 4, 5], [True] * 5) == 3
    # Two of five never had it: the curve falls to 0.8, 0.6, 0.4.
    assert median_time([10, 20, 30, 40, 40], [True, True, True, False, False]) == 30
    assert median_time([10, 20, 40, 40, 40], [True, True, False, False, False]) is None
    # One that was watched for a short time counts until then.
    random = np.random.default_rng(3)
    for _ in range(50):
        times = random.integers(1, 9, 7).tolist()
        reached = (random.random(7) < 0.7).tolist()
        assert median_time(times, reached) == slow_median(times, reached)


def slow_median(times: list[float], reached: list[bool]) -> float | None:
    alive = 1.0
    for time in sorted(set(times)):
        at_risk = sum(other >= time for other in times)
        events = sum(r and other == time for other, r in zip(times, reached, strict=True))
        alive *= 1 - events / at_risk
        if alive <= 0.5 + 1e-12:
            return time
    return None


def test_times_are_compared_by_all_permutations() -> None:
    one = [(1.0, True), (2.0, True), (3.0, True), (4.0, True)]
    other = [(9.0, True), (10.0, False), (11.0, True), (12.0, True)]
    # No other split of the eight is as far apart, but the mirrored one.
    assert times_p(one, other) == pytest.approx(2 / math.comb(8, 4))
    assert times_p(one, other[:2]) is None
    assert times_p([(5.0, False)] * 3, [(5.0, False)] * 3) == 1.0
    same = list(itertools.chain(one, one))
    assert times_p(same[:4], same[4:]) == pytest.approx(1.0)


def test_a_summary_is_its_definitions() -> None:
    scores = [5.0, 1.0, 9.0, 3.0, 7.0, 100.0, 2.0, 4.0]
    found = summary({"": scores})
    assert found["mean"] == pytest.approx(131 / 8)
    assert found["median"] == 4.5
    assert found["iqm"] == pytest.approx((3 + 4 + 5 + 7) / 4)
    assert found["best_3"] == pytest.approx((100 + 9 + 7) / 3)
    draws = np.sort(np.random.default_rng(5).choice(scores, (20_000, 8)), axis=1)
    low, high = np.percentile(draws[:, 2:6].mean(axis=1), [2.5, 97.5])
    assert found["iqm_interval"] == pytest.approx([low, high], rel=0.03)
    few = summary({"": scores[: LEAST_RESAMPLED - 1]})
    assert few["iqm_interval"] is None
    two = summary({"": [1.0, 2.0]})
    assert (two["interval"], two["best_3"]) == (None, None)


@pytest.mark.slow
def test_the_interval_of_an_iqm_holds_the_truth_nine_times_of_ten() -> None:
    draws = np.random.default_rng(4).normal(7, 3, (SETS, LEAST_RESAMPLED))
    found = [summary({"": list(row)})["iqm_interval"] for row in draws]
    assert sum(low <= 7 <= high for low, high in found) >= 0.9 * SETS


def test_the_expected_best_is_the_mean_over_all_choices() -> None:
    scores = [3.0, 9.0, 1.0, 4.0, 4.0, 8.0, -2.0]
    for draws in range(1, 8):
        slow = np.mean([max(some) for some in itertools.combinations(scores, draws)])
        assert expected_best(scores, draws) == pytest.approx(slow)


def test_the_best_of_more_draws_of_the_same_is_not_better() -> None:
    random = np.random.default_rng(6)
    many = [expected_best(list(random.normal(size=24)), 3) for _ in range(SETS)]
    few = [expected_best(list(random.normal(size=3)), 3) for _ in range(SETS)]
    assert np.mean(many) == pytest.approx(np.mean(few), abs=0.06)  # 24 alone are 1.95, 3 are 0.85
