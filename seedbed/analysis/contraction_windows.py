"""Contraction of the realised mixing over windows of consecutive updates."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.mixing_steps import MixingStep

Array = NDArray[np.float64]
# Products at a time.
_BATCH = 64

# First step of a segment, and the step after its last one.
Segment = tuple[int, int]


class ContractionWindows:
    """Products of the mixing matrices over any w consecutive updates of one segment.

    A window goes from right before an update to right before the w-th one after it. Its product
    maps the state at its beginning, messages in flight included, to the state at its end.

    Args:
        steps: Steps of all events.
        segments: Segments of the run.
        learners: Number of learners n.
        rows: Number of rows of the state.
    """

    def __init__(
        self, steps: Sequence[MixingStep], segments: Sequence[Segment], learners: int, rows: int
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
        """Return the number of updates of the longest segment."""
        return max((len(alive) for _, alive in self._segments), default=0)

    def coefficient(self, length: int) -> float:
        """Return β_w, the largest coefficient of ergodicity of any window of `length` updates.

        The coefficient ½ max_ab Σ_j |Φ_aj − Φ_bj| bounds the part that a window leaves of the
        largest difference between two rows of the state. It is 1 if the mixing does not contract,
        or if no segment has a whole window.
        """
        worst = -1.0
        for products, alive in self._products(length):
            worst = max(worst, self._ergodicity(products, alive))
            if worst >= 1.0:
                return 1.0
        return 1.0 if worst < 0 else worst

    def _products(self, length: int) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
        """Yield the products [b, rows, rows] of the windows, and the rows alive [b, rows].

        Every window contains one multiple of `length`. Its product is the product before that
        multiple, times the one after it. So each step is processed once forwards and once
        backwards.
        """
        for steps, alive in self._segments:
            cuts = [at for at, step in enumerate(steps) if step.event.kind == "update"]
            for middle in range(length, len(cuts), length):
                first = middle - length
                before = self._backwards(steps[cuts[first] : cuts[middle]])
                last = min(middle + length, len(cuts)) - 1
                after = self._forwards(steps[cuts[middle] : cuts[last] + 1])
                # Windows first .. middle-1 begin there, and end at middle .. middle+length-1.
                for start in range(middle, last + 1, _BATCH):
                    end = np.arange(start, min(start + _BATCH, last + 1))
                    yield after[end - middle] @ before[end - length - first], alive[end]

    def _backwards(self, steps: list[MixingStep]) -> Array:
        """Return the products [c, rows, rows] from each update's cut to the end."""
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

    def _forwards(self, steps: list[MixingStep]) -> Array:
        """Return the products [c, rows, rows] from the beginning to each update's cut."""
        product = np.eye(self._rows)
        found = []
        for step in steps:
            if step.event.kind == "update":
                found.append(product.copy())
            step.apply(product)
        return np.array(found)

    def _ergodicity(self, products: Array, alive: NDArray[np.bool_]) -> float:
        """Return the largest coefficient of products [b, rows, rows] with rows alive [b, rows]."""
        # Row 0 is always alive, and equal rows do not differ.
        used = np.where(alive[:, :, None], products, products[:, :1])
        worst = 0.0
        for row in range(1, self._rows):
            apart = np.abs(used[:, :row] - used[:, row, None]).sum(axis=2)
            worst = max(worst, float(apart.max()) / 2)
        return worst if worst < 1 - 1e-9 else 1.0
