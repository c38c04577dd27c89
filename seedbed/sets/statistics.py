"""What the scores of some seeds tell of a setting, and of two settings. The unit is the seed.

Intervals hold the true value 95 times of 100. Fewer than three seeds have none: the spread of two
is no estimate. SciPy has the distributions.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seedbed.evaluation.aggregates import CONFIDENCE, Array, Interval, aggregate, intervals

LEAST_SEEDS = 3
# Of fewer, the bootstrap's interval of the IQM holds the true value less than 90 times of 100.
LEAST_RESAMPLED = 6
_RESAMPLES = 5_000
_SPLITS = 10_000  # five seeds against five have 252


def mean_interval(scores: Sequence[float]) -> Interval | None:
    """Return the interval of the mean by Student's t; None of fewer than `LEAST_SEEDS`.

    With few seeds a bootstrap's intervals are too narrow (Colas et al. 2018, section 4).

    Raises:
        ImportError: SciPy is not installed.
    """
    if len(scores) < LEAST_SEEDS:
        return None
    values = np.asarray(scores, np.float64)
    mean, half = float(values.mean()), float(half_widths(values))
    return Interval(mean - half, mean + half)


def half_widths(scores: Array) -> Array:
    """Return half of the width of the interval of each mean; NaN of fewer than `LEAST_SEEDS`.

    Args:
        scores: [seeds, ...]

    Raises:
        ImportError: SciPy is not installed.
    """
    count = len(scores)
    if count < LEAST_SEEDS:
        return np.full(scores.shape[1:], np.nan)
    from scipy.stats import t

    error = scores.std(axis=0, ddof=1) / count**0.5
    return np.asarray(t.ppf((1 + CONFIDENCE) / 2, count - 1) * error)


def summary(games: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return what some seeds tell of a setting; None where there are too few of them.

    The score of a seed is its mean over the games. The IQM is that of all runs of all games; its
    interval is that of the percentile bootstrap over seeds, with the games as strata (Agarwal et
    al. 2021). `median` is that of the seeds of one game, and of the means of several games.
    `best_3` is the mean of the best three seeds (Assran et al. 2019, Figure 1).

    Args:
        games: For each game the scores of the same seeds, at least one.

    Raises:
        ImportError: SciPy is not installed.
    """
    scores = np.mean(list(games.values()), axis=0).tolist()
    bounds = intervals(games, _RESAMPLES) if len(scores) >= LEAST_RESAMPLED else None
    interval = mean_interval(scores)
    return {
        "scores": scores,
        "games": {game: list(some) for game, some in games.items()} if len(games) > 1 else None,
        "mean": float(np.mean(scores)),
        "interval": list(interval) if interval is not None else None,
        "median": aggregate(games).median if len(games) > 1 else float(np.median(scores)),
        "iqm": aggregate(games).iqm,
        "iqm_interval": list(bounds[2]) if bounds is not None else None,
        "best_3": float(np.mean(sorted(scores)[-3:])) if len(scores) >= LEAST_SEEDS else None,
    }


def expected_best(scores: Sequence[float], draws: int) -> float:
    """Return the mean of the best of `draws` scores, over all ways to choose so many of them.

    Dodge et al. 2019 (arXiv:1909.03004) draw with replacement, which makes the best of all too
    small; without it the estimate has no bias (Tang et al. 2020, arXiv:2004.13705).

    Args:
        scores: At least `draws` of them.
        draws: Number of draws.
    """
    ways = [math.comb(at, draws - 1) for at in range(len(scores))]
    total = sum(way * score for way, score in zip(ways, sorted(scores), strict=True))
    return total / math.comb(len(scores), draws)


def difference_p(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the p-value of equal means by Welch's t-test; None of fewer than `LEAST_SEEDS` each.

    Where both have no spread, it is 1 for equal means, and 0 for others.

    Raises:
        ImportError: SciPy is not installed.
    """
    if min(len(one), len(other)) < LEAST_SEEDS:
        return None
    if np.ptp(one) == 0 and np.ptp(other) == 0:
        return float(one[0] == other[0])
    from scipy.stats import ttest_ind

    with warnings.catch_warnings():  # of a group without spread, whose variance is 0
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(ttest_ind(one, other, equal_var=False).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979), in the same order."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        corrected[at] = largest
    return corrected


def improvement(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the probability that a seed of `one` beats a seed of `other`; a tie is a half.

    Agarwal et al. 2021, section 4.3.
    """
    first, second = np.asarray(one)[:, None], np.asarray(other)[None, :]
    return float(((first > second) + 0.5 * (first == second)).mean())


def median_time(times: Sequence[float], reached: Sequence[bool]) -> float | None:
    """Return the median time to an event by the Kaplan-Meier curve; None where half never have it.

    Args:
        times: Time of the event of each seed, or until when the seed was watched without it.
        reached: Whether the seed had the event.
    """
    alive = 1.0
    order = sorted(zip(times, reached, strict=True), key=lambda pair: (pair[0], not pair[1]))
    for at, (time, is_event) in enumerate(order):
        if is_event:
            alive *= 1 - 1 / (len(order) - at)
        if alive <= 0.5 + 1e-12:
            return float(time)
    return None


def times_p(one: Sequence[tuple[float, bool]], other: Sequence[tuple[float, bool]]) -> float | None:
    """Return the p-value of equal times to an event by the permutation test of log-rank scores.

    With few seeds the test's usual approximation errs too often. Up to some thousand splits of the
    seeds are all tried, more are drawn.

    Args:
        one: Time of the event of each seed and true, or until when it was watched and false.
        other: The same of another setting.

    Returns:
        None of fewer than `LEAST_SEEDS` each.

    Raises:
        ImportError: SciPy is not installed.
    """
    if min(len(one), len(other)) < LEAST_SEEDS:
        return None
    scores = _log_rank_scores([*one, *other])
    if np.ptp(scores) == 0:
        return 1.0
    from scipy.stats import permutation_test

    found = permutation_test(
        (scores[: len(one)], scores[len(one) :]),
        lambda first, second, axis: first.mean(axis=axis) - second.mean(axis=axis),
        vectorized=True,
        n_resamples=_SPLITS,
        rng=np.random.default_rng(0),  # the same table twice is the same
    )
    return float(found.pvalue)


def _log_rank_scores(times: Sequence[tuple[float, bool]]) -> Array:
    """Return for each seed its event, 0 or 1, less its expectation by the Nelson-Aalen curve."""
    at = np.array([time for time, _ in times])
    events = np.array([is_event for _, is_event in times])
    expected = [
        sum(
            (events & (at == time)).sum() / (at >= time).sum()
            for time in np.unique(at[events])
            if time <= own
        )
        for own in at
    ]
    return events - np.array(expected, np.float64)
