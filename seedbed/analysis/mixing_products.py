"""Exact bound of the consensus distance, from products of the realised mixing matrices.

In a segment, X(k) = Φ(k,0) X(0) + Σ_s Φ(k,s) U(s), where U(s) is update number s, and Φ(k,s) the
product of the matrices of all events after it. So in any norm the distance to the average is at
most ‖(I−J)Φ(k,0)X(0)‖ + Σ_s ‖(I−J)Φ(k,s)U(s)‖, J = 11ᵀ/n. An update is one learner's: U(s) = e_i uᵀ
has one row that is not zero, and a term of the sum is

    Frobenius   ‖(I−J) Φ(k,s) e_i‖_2 · ‖u‖_2
    spread      max_{a,b} |Φ(k,s)_ai − Φ(k,s)_bi| · ‖u‖_2     (largest distance of two learners)

exactly. So one column of Φ(k,s) is enough. ‖(I−J)Φ(k,s)‖_2 · ‖U(s)‖_F would be the same
sum with a coarser factor: the worst direction over all learners, although only e_i occurs. That
factor is never smaller, can exceed 1 after a single mix, and takes n columns an update.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.mixing_steps import MixingStep
from seedbed.analysis.propositions import Envelope
from seedbed.analysis.snapshots import DISTANCES, NORMS, Norm

Array = NDArray[np.float64]

# A column that differs by less between any two rows has reached all learners alike, and is dropped.
CONSENSUS = 1e-12
# Unknown parameters with a smaller weight do not count.
FORGOTTEN = 1e-9
_PRUNE_EVERY_UPDATES = 256
_FIRST_CAPACITY = 1024


class MixingProducts:
    """Columns of Φ(k,s), updated from event to event.

    Unknown parameters, such as those that a process started with, are columns of infinite norm.
    There is no bound before `begin` has replaced them by a snapshot.

    Args:
        learners: Number of learners n.
        rows: Number of rows of the state.
        run_updates: Number of updates of the run.

    Attributes:
        updates: Number of updates so far, k + 1.
        envelopes: Largest norms of the columns that any bound had, by norm.
    """

    def __init__(self, learners: int, rows: int, run_updates: int) -> None:
        self._n = learners
        self.envelopes: dict[Norm, Envelope] = {norm: Envelope(run_updates) for norm in NORMS}
        self._columns = np.zeros((rows, _FIRST_CAPACITY))
        self._norm = np.zeros(_FIRST_CAPACITY)
        # Number of each update; -1 if it is none of this segment.
        self._number = np.zeros(_FIRST_CAPACITY, np.int64)
        self._size = 0
        self.updates = 0
        self._owner = np.arange(rows)  # learner of each row, if it is alive
        self._alive = np.arange(rows) < learners
        self._start = np.zeros((rows, learners))  # Φ(k,0), if X(0) is known
        self._gram: Array | None = None
        self._pruned = 0.0  # Σ spread · ‖u‖ of the dropped columns
        for learner in range(learners):
            self._append(learner, np.inf, -1)

    @property
    def known(self) -> bool:
        """Return whether a segment is open, because the start of every learner is known."""
        return self._gram is not None

    def apply(self, step: MixingStep) -> None:
        """Apply one event."""
        i = step.event.learner
        if step.lost:
            self._lose(i)
        if step.event.kind == "update":
            self._append(i, step.event.norm, self.updates)
            self.updates += 1
        step.apply(self._columns[:, : self._size])
        step.apply(self._start)
        if step.copy_to is not None:
            self._owner[step.copy_to] = i
            self._alive[step.copy_to] = True

    def free(self, step: MixingStep) -> None:
        """Free the rows that are not needed after an event, once they were used."""
        self._alive[step.freed] = False
        if step.event.kind == "update" and self.updates % _PRUNE_EVERY_UPDATES == 0:
            self._prune()

    def begin(self, shown: list[int], gram: Array) -> bool:
        """Begin a segment at a snapshot, if every message in flight is known there.

        A message in flight holds older parameters of its sender. It differs from the sender's
        snapshot by the updates since then, so each column becomes the difference between a row and
        the snapshot of its learner. The segment begins if no unknown column has a weight left.

        Args:
            shown: Rows of the learners' snapshots, by rank.
            gram: Gram matrix [n, n] of these snapshots.

        Returns:
            Whether the segment began.
        """
        rows = np.flatnonzero(self._alive)
        owners = self._owner[rows]
        since = self._columns[rows, : self._size]
        since -= self._columns[np.array(shown)[owners], : self._size]
        unknown = np.isinf(self._norm[: self._size])
        if np.abs(since[:, unknown]).max(initial=0.0) > FORGOTTEN:
            return False
        self._columns[rows, : self._size] = since
        self._keep(~unknown & (since != 0).any(axis=0))
        self._number[: self._size] = -1
        self._start[rows] = np.eye(self._n)[owners]
        self._gram = gram
        self._pruned *= 2  # the difference of two rows of what was pruned
        return True

    def bounds(self, rows: Sequence[int]) -> dict[Norm, tuple[float, float]]:
        """Return the rest of the segment's start and the exact bound, in each norm.

        The rest of the start includes pruned columns. Only while `known`.

        Args:
            rows: Rows of a snapshot by rank, or those of the learners as they are.
        """
        assert self._gram is not None
        table = self._columns[rows, : self._size]
        columns: dict[Norm, Array] = {
            "frobenius": np.linalg.norm(table - table.mean(axis=0), axis=0),
            "spread": table.max(axis=0) - table.min(axis=0),
        }
        # `propositions.py` says why √n/2.
        pruned = {"frobenius": self._pruned * float(np.sqrt(self._n)) / 2, "spread": self._pruned}
        norms, numbers = self._norm[: self._size], self._number[: self._size]
        own = numbers >= 0
        found: dict[Norm, tuple[float, float]] = {}
        for norm in NORMS:
            start = DISTANCES[norm](self._start[rows], self._gram)
            start += float(columns[norm][~own] @ norms[~own])
            start += pruned[norm]
            found[norm] = start, start + float(columns[norm][own] @ norms[own])
            self.envelopes[norm].add(self.updates - numbers[own], columns[norm][own])
        return found

    def _append(self, row: int, norm: float, number: int) -> None:
        if self._size == len(self._norm):
            self._columns = np.pad(self._columns, ((0, 0), (0, self._size)))
            self._norm = np.pad(self._norm, (0, self._size))
            self._number = np.pad(self._number, (0, self._size))
        self._columns[:, self._size] = 0.0
        self._columns[row, self._size] = 1.0
        self._norm[self._size] = norm
        self._number[self._size] = number
        self._size += 1

    def _lose(self, learner: int) -> None:
        """Let a learner go on from unknown parameters, and end the segment."""
        if self._gram is not None:
            for known in range(self._n):
                self._append(known, np.inf, -1)
                self._columns[:, self._size - 1] = self._start[:, known]
            self._gram = None
        self._columns[learner, : self._size] = 0.0
        self._append(learner, np.inf, -1)

    def _prune(self) -> None:
        """Drop the columns that are alike in every row, because no later mixing changes them."""
        columns = self._columns[self._alive, : self._size]
        widths = columns.max(axis=0) - columns.min(axis=0)
        norms = self._norm[: self._size]
        keep = ~((widths < CONSENSUS) & np.isfinite(norms))
        self._pruned += float(widths[~keep] @ norms[~keep])
        self._keep(keep)

    def _keep(self, chosen: NDArray[np.bool_]) -> None:
        size = int(chosen.sum())
        self._columns[:, :size] = self._columns[:, : self._size][:, chosen]
        self._norm[:size] = self._norm[: self._size][chosen]
        self._number[:size] = self._number[: self._size][chosen]
        self._size = size
