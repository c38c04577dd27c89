"""Propositions 1 and 2 of Assran et al. 2019, with the constants of a run.

Proposition 1: ‖X(k+1) − X̄(k+1)‖ ≤ Σ_s β^{k+1−s} ‖U(s)‖, where U(s) = α G(s) is an update as the
optimizer really made it. k counts updates of all learners.

Proposition 2: the same is at most L β̃ / (1 − β), if a window of w updates always contracts. Let β_w
be the largest coefficient of ergodicity of a window (`windows.py`), L the largest ‖u‖_2. An update
is in one row, so its column's largest difference between two rows is 1 where it is made. Rows of a
stochastic matrix are averages, so it never grows, and each whole window that lies between s and k
multiplies it by β_w at most:

    spread of Φ(k,s) e_i  ≤  β_w^⌊(k−s)/w⌋  ≤  β_w^{(k−s)/w − (w−1)/w}  =  β̃ β^{k−s},
    β = β_w^{1/w},   β̃ = β_w^{−(w−1)/w},

and Σ_s β̃ β^{k−s} L ≤ L β̃ / (1 − β). With the paper's w = τ + B + 1 that is its β̃. But the paper
counts τ and B in iterations of the whole, a run in those of one learner, and in so few nobody may
have heard of everybody: so twice, four times ... that window are tried as well; any w is a bound.
A greater β_w is one too: below ((w−1)/w)^w, where the expression is least, it is put there.
n numbers within 1 of each other are within √n/2 of their average, in the 2-norm: so much larger is
the level for the Frobenius distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.windows import Windows

Array = NDArray[np.float64]
_MOST_DOUBLINGS = 12
_ROUNDING = 1e-12  # by which a computed norm of 1 may miss it


class Envelope:
    """The largest norm of a product that was seen after each number of updates."""

    def __init__(self, updates: int) -> None:
        self._largest = np.zeros(updates + 1)

    def see(self, lags: NDArray[np.int64], norms: Array) -> None:
        """[m] lags k+1−s ≥ 1, each once, and [m] norms."""
        self._largest[lags] = np.maximum(self._largest[lags], norms)

    @property
    def largest(self) -> float:
        """The largest norm of all."""
        return float(self._largest.max(initial=0.0))

    def beta(self) -> float | None:
        """The smallest β in [0, 1] with β^{k+1−s} above every norm; None where one exceeds 1, or
        where there are none.
        """
        lags = np.flatnonzero(self._largest)
        if self.largest > 1 + _ROUNDING or not len(lags):
            return None
        return min(1.0, float((self._largest[lags] ** (1 / lags)).max()))


def proposition_1(norms: Sequence[float], beta: float) -> Array:
    """[m+1] Σ_s β^{k+1−s} ‖U(s)‖ before and after each of m updates, whose norms are given."""
    sums = np.zeros(len(norms) + 1)
    for at, norm in enumerate(norms):
        sums[at + 1] = beta * (sums[at] + norm)
    return sums


@dataclass(frozen=True)
class Proposition2:
    """The level of Proposition 2, without what is left of the start.

    Attributes:
        window: w, in updates of all learners.
        beta_w: the largest coefficient of ergodicity over w updates.
        largest_update: L, 2-norm.
        level_spread: L β̃ / (1 − β).
        level_frobenius: √n/2 times that.
    """

    window: int
    beta_w: float
    largest_update: float
    level_spread: float
    level_frobenius: float


def proposition_2(
    windows: Windows,
    learners: int,
    largest_update: float,
    staleness: int | None,
    window: int | None,
) -> Proposition2 | str:
    """The level of Proposition 2, or why there is none.

    Args:
        windows: of the run.
        learners: n.
        largest_update: L.
        staleness: τ in local iterations; None is infinite.
        window: B; None is not known, or infinite.
    """
    if staleness is None:
        return "Proposition 2 needs a finite τ, and gossip.staleness is not set"
    if window is None:
        return "Proposition 2 needs a finite B, and the graphs have none that is known"
    best: Proposition2 | None = None
    length = staleness + window + 1
    for _ in range(_MOST_DOUBLINGS):
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
            "is dead, or alone, or a run that is too short, makes Proposition 2 empty"
        )
    return best
