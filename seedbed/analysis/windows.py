"""How much the realised mixing contracts over windows of global iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.steps import Step

Array = NDArray[np.float64]
_BATCH = 64  # products at a time

# A segment: its first step, and the one after its last.
Segment = tuple[int, int]


class Windows:
    """The products of the mixing over any w updates in a row that lie in one segment.

    A window goes from right before an update to right before the w-th one after it; its product
    takes the state there, messages on their way included, to the state here.
    """

    def __init__(
        self, steps: Sequence[Step], segments: Sequence[Segment], learners: int, rows: int
    ) -> None:
        self._rows = rows
        self._segments = []
        alive = np.arange(rows) < learners
        at_cut = {}
        for at, step in enumerate(steps):
            if step.event.kind == "update":
                at_cut[at] = alive.copy()
            if step.event.kind != "snapshot":
                if step.copy_to is not None:
                    alive[step.copy_to] = True
                alive[step.freed] = False
        for first, end in segments:
            cuts = [at for at in range(first, end) if at in at_cut]
            if cuts:
                mixing = [step for step in steps[cuts[0] : end] if step.event.kind != "snapshot"]
                self._segments.append((mixing, np.array([at_cut[at] for at in cuts])))

    @property
    def longest(self) -> int:
        """Updates of the longest segment."""
        return max((len(alive) for _, alive in self._segments), default=0)

    def coefficient(self, length: int) -> float:
        """β_w: the largest coefficient of ergodicity of any window of `length` updates.

        That is ½ max_ab Σ_j |Φ_aj − Φ_bj|: no window leaves more than this part of the largest
        difference between two rows of the state. 1 where there is no contraction, and where no
        segment has a whole window.
        """
        worst = -1.0
        for steps, alive in self._segments:
            worst = max(worst, self._segment(steps, alive, length))
            if worst >= 1.0:
                break
        return 1.0 if worst < 0 else min(1.0, worst)

    def _segment(self, steps: list[Step], alive: NDArray[np.bool_], length: int) -> float:
        """Every window reaches over one multiple of `length`, and is what leads up to it, times
        what follows it: so each step is gone over once forwards and once backwards."""
        cuts = [at for at, step in enumerate(steps) if step.event.kind == "update"]
        worst = -1.0
        for middle in range(length, len(cuts), length):
            first = middle - length
            before = self._backwards(steps[cuts[first] : cuts[middle]])
            last = min(middle + length, len(cuts)) - 1
            after = self._forwards(steps[cuts[middle] : cuts[last] + 1])
            # Windows first .. middle-1 begin there, and end at middle .. middle+length-1.
            ends = np.arange(middle, last + 1)
            for start in range(0, len(ends), _BATCH):
                end = ends[start : start + _BATCH]
                products = after[end - middle] @ before[end - length - first]
                worst = max(worst, self._ergodicity(products, alive[end]))
                if worst >= 1.0:
                    return worst
        return worst

    def _backwards(self, steps: list[Step]) -> Array:
        """[c, rows, rows]: the product from each update's cut to the end."""
        product = np.eye(self._rows)
        found = []
        for step in reversed(steps):
            i = step.event.learner
            if step.copy_to is not None:
                product[:, i] += product[:, step.copy_to]
                product[:, step.copy_to] = 0.0
            elif step.sources:
                column = product[:, i].copy()
                product[:, i] = step.own * column
                for row, weight in step.sources:
                    product[:, row] += weight * column
            if step.event.kind == "update":
                found.append(product.copy())
        return np.array(found[::-1])

    def _forwards(self, steps: list[Step]) -> Array:
        """[c, rows, rows]: the product from the beginning to each update's cut."""
        product = np.eye(self._rows)
        found = []
        for step in steps:
            i = step.event.learner
            if step.event.kind == "update":
                found.append(product.copy())
            if step.copy_to is not None:
                product[step.copy_to] = product[i]
            elif step.sources:
                product[i] *= step.own
                for row, weight in step.sources:
                    product[i] += weight * product[row]
        return np.array(found)

    def _ergodicity(self, products: Array, alive: NDArray[np.bool_]) -> float:
        """The largest coefficient of [b, rows, rows]; rows that are not alive do not count."""
        used = np.where(alive[:, :, None], products, products[:, :1])  # learner 0 always is
        a, b = np.triu_indices(self._rows, 1)
        worst = 0.0
        for first, second in zip(np.array_split(a, 8), np.array_split(b, 8), strict=True):
            if len(first):
                apart = np.abs(used[:, first] - used[:, second]).sum(axis=2)
                worst = max(worst, float(apart.max()) / 2)
        return worst if worst < 1 - 1e-9 else 1.0
