"""Bounds of Propositions 1 and 2 of Assran et al. 2019, with the constants of a run.

Proposition 1: ‖X(k+1) − X̄(k+1)‖ ≤ Σ_s β^{k+1−s} ‖U(s)‖, where U(s) = α G(s) is the update
that the optimizer really made. k counts updates of all learners.

Proposition 2: the distance is at most L β̃ / (1 − β), if every window of w updates contracts. Let
β_w be the largest coefficient of ergodicity of a window (`contraction_windows.py`), L the largest
‖u‖_2. An update changes one row, so the largest difference between two rows of its column is 1 at
first. It never grows, because rows of a stochastic matrix are averages, and each whole window
between s and k multiplies it by β_w at most:

    spread of Φ(k,s) e_i  ≤  β_w^⌊(k−s)/w⌋  ≤  β_w^{(k−s)/w − (w−1)/w}  =  β̃ β^{k−s},
    β = β_w^{1/w},   β̃ = β_w^{−(w−1)/w},

and Σ_s β̃ β^{k−s} L ≤ L β̃ / (1 − β). The paper's w = τ + B + 1 gives the paper's β̃. The paper
counts τ and B in global iterations, a run counts them in local ones, and so short a window may not
contract. So windows twice, four times ... as long are tried too: every w gives a bound. A greater
β_w gives a bound as well, so a β_w below ((w−1)/w)^w, where the expression is smallest, is raised
to that value. n numbers within 1 of each other are within √n/2 of their average in the 2-norm, so
the level for the Frobenius distance is larger by this factor.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.contraction_windows import ContractionWindows

Array = NDArray[np.float64]
_MAX_DOUBLINGS = 12
# A computed norm of 1 may exceed 1 by so much.
_ROUNDING = 1e-12


class Envelope:
    """Largest norm of the products over each number of updates.

    Args:
        updates: Number of updates of the run.
    """

    def __init__(self, updates: int) -> None:
        self._largest = np.zeros(updates + 1)

    def add(self, lags: NDArray[np.int64], norms: Array) -> None:
        """Add the norms of products.

        Args:
            lags: k + 1 − s ≥ 1 of each product [m], each once.
            norms: Norm of each product [m].
        """
        self._largest[lags] = np.maximum(self._largest[lags], norms)

    @property
    def largest(self) -> float:
        """Return the largest norm of all."""
        return float(self._largest.max(initial=0.0))

    def beta(self) -> float | None:
        """Return the smallest β in [0, 1] with β^{k+1−s} at or above every norm.

        None if a norm exceeds 1, or if there are none.
        """
        lags = np.flatnonzero(self._largest)
        if self.largest > 1 + _ROUNDING or not len(lags):
            return None
        return min(1.0, float((self._largest[lags] ** (1 / lags)).max()))


def proposition_1(norms: Sequence[float], beta: float) -> list[float]:
    """Return the bound Σ_s β^{k+1−s} ‖U(s)‖ of Proposition 1.

    Args:
        norms: Norm ‖U(s)‖ of each of m updates.
        beta: β.

    Returns:
        The bound before each update and after the last one [m + 1].
    """
    return list(itertools.accumulate(norms, lambda sum_, norm: beta * (sum_ + norm), initial=0.0))


@dataclass(frozen=True)
class Proposition2:
    """Level of Proposition 2, without the rest of the start.

    Attributes:
        window: Window w, in updates of all learners.
        beta_w: Largest coefficient of ergodicity over w updates.
        largest_update: Largest 2-norm L of an update.
        level_spread: L β̃ / (1 − β).
        level_frobenius: √n/2 times the level in the spread.
    """

    window: int
    beta_w: float
    largest_update: float
    level_spread: float
    level_frobenius: float


def proposition_2(
    windows: ContractionWindows,
    learners: int,
    largest_update: float,
    staleness: int | None,
    window: int | None,
) -> Proposition2 | str:
    """Return the level of Proposition 2, or the reason why there is none.

    Args:
        windows: Products of the run's mixing matrices.
        learners: Number of learners n.
        largest_update: Largest 2-norm L of an update.
        staleness: τ in local iterations; None is infinite.
        window: B; None is unknown or infinite.
    """
    if staleness is None:
        return "Proposition 2 needs a finite τ, and gossip.staleness is not set"
    if window is None:
        return "Proposition 2 needs a finite B, and the graphs have none that is known"
    best: Proposition2 | None = None
    length = staleness + window + 1
    for _ in range(_MAX_DOUBLINGS):
        if 2 * length > windows.longest:
            break
        beta_w = windows.coefficient(length)
        if beta_w < 1:
            used = max(beta_w, ((length - 1) / length) ** length)
            beta = used ** (1 / length)
            sum_of_powers = used ** (-(length - 1) / length) if length > 1 else 1.0
            level = largest_update * sum_of_powers / (1 - beta)
            if best is not None and level >= best.level_spread:
                break
            best = Proposition2(
                length, beta_w, largest_update, level, level * float(np.sqrt(learners)) / 2
            )
        length *= 2
    if best is None:
        return (
            f"no window of up to {length // 2} updates always contracts (β_w = 1): a learner that "
            "has stopped or is alone, or a run that is too short, makes Proposition 2 empty"
        )
    return best
