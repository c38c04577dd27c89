"""The learners' distances over a run, and their bounds: Figure 2a of Assran et al. 2019."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis import snapshots
from seedbed.analysis.events import Event, events_file, read_events
from seedbed.analysis.order import doubtful_snapshots, order, with_snapshots
from seedbed.analysis.products import CONSENSUS, Products, Terms
from seedbed.analysis.propositions import Envelope, Proposition2, proposition_1, proposition_2
from seedbed.analysis.steps import Step, steps_of
from seedbed.analysis.windows import Windows
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

Array = NDArray[np.float64]
Norm = Literal["frobenius", "spread"]
NORMS: tuple[Norm, ...] = ("frobenius", "spread")
POINTS = 500  # besides the snapshots


@dataclass(slots=True)
class Values:
    """In one norm: None is what is not known there."""

    distance: float | None = None
    start: float | None = None
    bound: float | None = None
    proposition_1: float | None = None
    proposition_2: float | None = None


@dataclass(slots=True)
class Point:
    """A moment of the curves.

    Attributes:
        seconds: since the first event.
        updates: of all learners, until then.
        segment: number of the segment, from 0; None before the first, and after a restart.
        snapshot: its number C where it is one.
        frobenius: ‖X − X̄‖_F.
        spread: max_ij ‖x_i − x_j‖_2.
    """

    seconds: float
    updates: int
    segment: int | None = None
    snapshot: int | None = None
    frobenius: Values = field(default_factory=Values)
    spread: Values = field(default_factory=Values)

    def values(self, norm: Norm) -> Values:
        """In that norm."""
        return self.frobenius if norm == "frobenius" else self.spread


@dataclass(frozen=True)
class Mark:
    """Something that happened to the learners: `seconds` as in `Point`."""

    seconds: float
    learner: int
    what: Literal["restart", "graph", "void"]
    alive: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ball:
    """The curves of a run and their constants.

    Attributes:
        points: in their order.
        marks: likewise.
        counts: events by kind.
        segments: how many.
        beta: Proposition 1's, by norm; None where a product is larger than 1.
        largest_product: the largest norm of a column of Φ(k,s), by norm.
        proposition_2: its level, or a sentence why there is none.
    """

    points: list[Point]
    marks: list[Mark]
    counts: dict[str, int]
    segments: int
    beta: dict[Norm, float | None]
    largest_product: dict[Norm, float]
    proposition_2: Proposition2 | str


def analyse_run(
    run_dir: Path, learners: int, every_s: float, staleness: int | None, window: int | None
) -> Ball:
    """Read what the learners of a run logged, and compute its curves.

    Args:
        run_dir: holds learner-0 ... learner-(n-1).
        learners: n.
        every_s: seconds between snapshots.
        staleness: τ in local iterations; None is infinite.
        window: B; None is not known.

    Raises:
        SeedbedError: RUN_DIRECTORY; logs or snapshots are missing, or damaged.
    """
    logs = []
    for learner in range(learners):
        file = events_file(run_dir, learner)
        events = read_events(file, learner) if file.exists() else []
        if not any(event.kind == "update" for event in events):
            raise SeedbedError(
                ExitCode.RUN_DIRECTORY,
                f"{file} has no events: a learner that gossips writes them from its first update "
                "on; copy the directories of all learners to one place, as learner-0, learner-1 "
                "and so on",
            )
        logs.append(events)
    files = snapshots.numbered(run_dir, learners, "snapshot")
    numbers = snapshots.common(files) if every_s else []
    if not numbers:
        raise SeedbedError(
            ExitCode.RUN_DIRECTORY,
            f"{run_dir} has no snapshot-C.npy that every learner wrote for the same C "
            f"({', '.join(f'learner-{i}: {len(of)}' for i, of in enumerate(files))} files): set "
            f"gossip.snapshot_every_s (it is {every_s:g}) to well below the length of the run",
        )
    grams = {
        number: snapshots.gram([of_learner[number] for of_learner in files]) for number in numbers
    }
    return analyse(logs, grams, every_s, staleness, window)


def analyse(
    logs: Sequence[Sequence[Event]],
    grams: dict[int, Array],
    every_s: float,
    staleness: int | None,
    window: int | None,
    points: int = POINTS,
    prune_below: float = CONSENSUS,
) -> Ball:
    """The curves.

    Args:
        logs: each learner's events.
        grams: [n, n] of each snapshot that all learners have, by its number (`snapshots.gram`).
        every_s, staleness, window: as for `analyse_run`.
        points: how many besides the snapshots.
        prune_below: `Products`'.

    Raises:
        SeedbedError: RUN_DIRECTORY; the logs do not fit each other.
    """
    shown = [with_snapshots(log, sorted(grams), every_s) for log in logs]
    doubtful = set().union(*(doubtful_snapshots(log) for log in shown))
    events = order(
        [[e for e in log if e.kind != "snapshot" or e.iteration not in doubtful] for log in shown]
    )
    steps, rows = steps_of(events, len(logs))
    walk = _Walk(steps, rows, len(logs), grams, points, prune_below)
    largest = max((norm for norms in walk.norms for norm in norms), default=0.0)
    level = proposition_2(
        Windows(steps, walk.segments, len(logs), rows), len(logs), largest, staleness, window
    )
    beta = {norm: walk.envelopes[norm].beta() for norm in NORMS}
    for norm in NORMS:
        _add_propositions(walk, norm, beta[norm], level)
    counts = {
        kind: sum(event.kind == kind for event in events)
        for kind in ("start", "adopt", "update", "mix", "graph", "lost")
    }
    return Ball(
        walk.points,
        _marks(events),
        counts,
        len(walk.segments),
        beta,
        {norm: walk.envelopes[norm].largest for norm in NORMS},
        level,
    )


class _Walk:
    """Once over all steps: everything but the propositions, whose constants come at the end."""

    def __init__(
        self,
        steps: list[Step],
        rows: int,
        learners: int,
        grams: dict[int, Array],
        points: int,
        prune_below: float,
    ) -> None:
        self._products = Products(learners, rows, prune_below)
        self._grams = grams
        self._learners = learners
        updates = sum(step.event.kind == "update" for step in steps)
        at_updates = set(np.linspace(0, updates, points + 1).astype(int)[1:].tolist())
        self.envelopes: dict[Norm, Envelope] = {norm: Envelope(updates) for norm in NORMS}
        self.points: list[Point] = []
        self.apart: list[int] = []  # of each point: updates while its snapshots were taken
        self.segments: list[tuple[int, int]] = []  # steps
        self.norms: list[list[float]] = []  # of each segment's updates
        self.first: list[int] = []  # each segment's first update
        self._shown: dict[int, dict[int, int]] = {}  # snapshot -> learner -> row
        self._since: dict[int, int] = {}  # snapshot -> updates when its first row was taken
        began = steps[0].event.time
        seconds = 0.0
        for at, step in enumerate(steps):
            if step.event.kind == "update" and self._products.updates in at_updates:
                self._point(seconds)
            seconds = max(seconds, step.event.time - began)
            if step.lost and self._products.known:
                self.segments[-1] = (self.segments[-1][0], at)
            self._products.apply(step)
            if step.event.kind == "update" and self._products.known:
                self.norms[-1].append(step.event.norm)
            if step.event.kind == "snapshot":
                self._snapshot(seconds, at, step, len(steps))
            self._products.free(step)
        self._point(seconds)

    def _point(self, seconds: float) -> None:
        if self._products.known:
            self.points.append(Point(seconds, self._products.updates))
            self.apart.append(0)
            self._measure(self._products.terms())

    def _snapshot(self, seconds: float, at: int, step: Step, end: int) -> None:
        number = step.event.iteration
        since = self._since.setdefault(number, self._products.updates)
        taken = self._shown.setdefault(number, {})
        assert step.copy_to is not None
        taken[step.event.learner] = step.copy_to
        if len(taken) < self._learners:
            return
        shown = [taken[learner] for learner in range(self._learners)]
        gram = self._grams[number]
        if not self._products.known and self._products.begin(shown, gram):
            self.segments.append((at, end))
            self.norms.append([])
            self.first.append(self._products.updates)
        point = Point(seconds, self._products.updates, snapshot=number)
        whole = np.eye(self._learners)
        point.frobenius.distance = snapshots.frobenius(whole, gram)
        point.spread.distance = snapshots.spread(whole, gram)
        self.points.append(point)
        self.apart.append(self._products.updates - since)
        if self._products.known:
            self._measure(self._products.terms(shown))

    def _measure(self, terms: Terms) -> None:
        point = self.points[-1]
        point.segment = len(self.segments) - 1
        lags = point.updates - terms.numbers
        found: dict[Norm, tuple[float, Array]] = {
            "frobenius": (terms.start_frobenius, terms.frobenius),
            "spread": (terms.start_spread, terms.spread),
        }
        for norm, (start, norms) in found.items():
            values = point.values(norm)
            values.start = start
            values.bound = start + float(norms @ terms.norms)
            self.envelopes[norm].see(lags, norms)


def _add_propositions(
    walk: _Walk, norm: Norm, beta: float | None, level: Proposition2 | str
) -> None:
    """With what is left of the start, which the propositions take to be nothing."""
    sums = [None if beta is None else proposition_1(norms, beta) for norms in walk.norms]
    for point, apart in zip(walk.points, walk.apart, strict=True):
        values = point.values(norm)
        if point.segment is None or values.start is None:
            continue
        of_segment = sums[point.segment]
        if of_segment is not None:
            done = point.updates - walk.first[point.segment]
            values.proposition_1 = values.start + float(of_segment[done])
        if not isinstance(level, str):
            whole = level.level_spread if norm == "spread" else level.level_frobenius
            # Where clocks differ, updates came while the snapshots were taken: each is whole.
            values.proposition_2 = values.start + whole + apart * level.largest_update


def _marks(events: Sequence[Event]) -> list[Mark]:
    marks: list[Mark] = []
    began: set[int] = set()
    for event in events:
        seconds = event.time - events[0].time
        if event.kind == "start":
            if event.learner in began:
                marks.append(Mark(seconds, event.learner, "restart"))
            began.add(event.learner)
        elif event.kind == "graph":
            what: Literal["void", "graph"] = "void" if event.void else "graph"
            marks.append(Mark(seconds, event.learner, what, event.alive))
    return marks
