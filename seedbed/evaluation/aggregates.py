"""Median, mean and interquartile mean of scores over games, with intervals over seeds.

The definitions are those of Agarwal et al. 2021 (Deep RL at the edge of the statistical precipice,
arXiv:2108.13264) and of the library rliable. The bootstrap is SciPy's: rliable's wheels end with
1.0.8, which asks for arch 5.3.0, and no wheel of that is for Python 3.11; rliable 1.2.0 has no
wheel, and with the newest arch and pandas, which it asks for, its import fails.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 50_000  # as rliable
_BATCH = 2_000  # resamples at a time, for the memory of 57 games


class Aggregates(NamedTuple):
    """One number for all games.

    Attributes:
        median: Median of the games' means.
        mean: Mean of the games' means.
        iqm: Mean of all runs of all games without the lowest and the highest quarter of them.
    """

    median: float
    mean: float
    iqm: float


class Interval(NamedTuple):
    """Bounds of a 95 % confidence interval."""

    low: float
    high: float


def aggregate(scores: Mapping[str, Sequence[float]]) -> Aggregates:
    """Return the aggregates of scores.

    Args:
        scores: For each game the scores of its runs, at least one.
    """
    return Aggregates(*map(float, _statistics(*map(np.asarray, scores.values()))))


def intervals(
    scores: Mapping[str, Sequence[float]], resamples: int = RESAMPLES
) -> tuple[Interval, Interval, Interval] | None:
    """Return the intervals of median, mean and IQM by a stratified bootstrap.

    The runs of each game are drawn again with replacement, apart from those of other games; the
    bounds are percentiles. The games are not drawn: they are the benchmark.

    Args:
        scores: For each game the scores of its runs.
        resamples: Number of draws.

    Returns:
        None where a game has one run, which says nothing of its spread.

    Raises:
        ImportError: SciPy is not installed.
    """
    if min(map(len, scores.values())) < 2:
        return None
    from scipy.stats import bootstrap

    found = bootstrap(
        tuple(np.asarray(runs, np.float64) for runs in scores.values()),
        _statistics,
        n_resamples=resamples,
        batch=_BATCH,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),  # the same table twice is the same
    ).confidence_interval
    median, mean, iqm = map(Interval, found.low.tolist(), found.high.tolist())
    return median, mean, iqm


def _statistics(*games: Array, axis: int = -1) -> Array:
    """Return median, mean and IQM, [3, ...].

    Args:
        games: For each game the scores of its runs, [..., S].
        axis: Axis of the runs, the last one.
    """
    means = np.stack([game.mean(axis=axis) for game in games], axis=-1)
    every = np.sort(np.concatenate(games, axis=axis), axis=axis)
    cut = every.shape[-1] // 4
    middle = every[..., cut : every.shape[-1] - cut]
    return np.stack([np.median(means, axis=-1), means.mean(axis=-1), middle.mean(axis=-1)])
