"""How alike the learners' gradients are (Assran et al. 2019, Figure 2b)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.snapshots import common, read_flat


def cosine_similarity(
    files: Sequence[dict[int, Path]],
) -> tuple[NDArray[np.float64], list[int]]:
    """[n, n] cosine similarity of two learners' gradients of the same local iteration, averaged
    over the iterations of which all learners have one; and these iterations.

    A gradient that is all zero has no direction, and is left out of the average; NaN where a pair
    has none left.
    """
    iterations = common(files)
    n = len(files)
    total, count = np.zeros((n, n)), np.zeros((n, n))
    for iteration in iterations:
        vectors = read_flat([of_learner[iteration] for of_learner in files])
        gradients = np.stack(vectors).astype(np.float64)
        sizes = np.linalg.norm(gradients, axis=1)
        has = np.outer(sizes > 0, sizes > 0)
        gradients /= np.where(sizes > 0, sizes, 1.0)[:, None]
        total += np.where(has, gradients @ gradients.T, 0.0)
        count += has
    with np.errstate(invalid="ignore"):
        return total / count, iterations
