"""Consensus distance of the learners over a run, and its bounds.

The ε-ball of Assran et al. 2019, Figure 2a; Kong et al. 2021 call the distance consensus distance.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.contraction_windows import ContractionWindows
from seedbed.analysis.events import Event, Kind, events_file, read_events
from seedbed.analysis.mixing_products import MixingProducts
from seedbed.analysis.mixing_steps import (
    MixingStep,
    causal_order,
    doubtful_snapshots,
    mixing_steps,
    with_snapshots,
)
from seedbed.analysis.propositions import Proposition2, proposition_1, proposition_2
from seedbed.analysis.snapshots import DISTANCES, NORMS, Norm, common, gram, numbered
from seedbed.runtime.exit_codes import RunDirectoryError

Array = NDArray[np.float64]
# Points of a curve besides the snapshots.
POINTS = 500
# Kinds of events that are counted.
COUNTED: tuple[Kind, ...] = ("start", "adopt", "update", "mix", "graph", "lost")


@dataclass(slots=True)
class Values:
    """Distance and bounds in one norm; None if unknown.

    Attributes:
        distance: True distance, at a snapshot.
        start: Rest of the distance at the start of the segment.
        bound: Exact bound.
        proposition_1: Bound of Proposition 1.
        proposition_2: Bound of Proposition 2.
    """

    distance: float | None = None
    start: float | None = None
    bound: float | None = None
    proposition_1: float | None = None
    proposition_2: float | None = None


@dataclass(slots=True)
class Point:
    """Moment of the curves.

    Attributes:
        seconds: Seconds since the first event.
        updates: Updates of all learners so far.
        segment: Number of the segment, from 0; None outside of every segment.
        snapshot: Number C of the snapshot; None between two snapshots.
        apart: Updates while the snapshots of this number were taken.
        frobenius: ‖X − X̄‖_F and its bounds.
        spread: max_ij ‖x_i − x_j‖_2 and its bounds.
    """

    seconds: float
    updates: int
    segment: int | None = None
    snapshot: int | None = None
    apart: int = 0
    frobenius: Values = field(default_factory=Values)
    spread: Values = field(default_factory=Values)

    def values(self, norm: Norm) -> Values:
        """Return the values in a norm."""
        return self.frobenius if norm == "frobenius" else self.spread


@dataclass(frozen=True)
class Mark:
    """Restart of a learner, or change of its graph; `seconds` as in `Point`."""

    seconds: float
    learner: int
    what: Literal["restart", "graph", "void"]
    alive: tuple[int, ...] = ()


@dataclass(frozen=True)
class ConsensusAnalysis:
    """Curves of a run, and their constants.

    Attributes:
        points: Moments of the curves, in order.
        marks: Restarts and changes of graphs, in order.
        counts: Number of events by kind.
        segments: Number of segments.
        beta: β of Proposition 1, by norm; None if a product has a norm above 1.
        largest_product: Largest norm of a column of Φ(k,s), by norm.
        proposition_2: Level of Proposition 2, or a sentence why there is none.
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
) -> ConsensusAnalysis:
    """Compute the curves of a run directory.

    Args:
        run_dir: Folder of learner-0 ... learner-(n-1).
        learners: Number of learners n.
        every_s: Seconds between two snapshots.
        staleness: τ in local iterations; None is infinite.
        window: Connectivity window B; None is unknown.

    Raises:
        SeedbedError: RUN_DIRECTORY; logs or snapshots are missing or damaged.
    """
    logs = []
    for learner in range(learners):
        file = events_file(run_dir, learner)
        events = read_events(file, learner) if file.exists() else []
        if not any(event.kind == "update" for event in events):
            raise RunDirectoryError(
                f"{file} has no events: a learner that gossips writes them from its first update "
                "on; copy the directories of all learners to one place, as learner-0, learner-1 "
                "and so on"
            )
        logs.append(events)
    files = numbered(run_dir, learners, "snapshot")
    numbers = common(files) if every_s else []
    if not numbers:
        raise RunDirectoryError(
            f"{run_dir} has no snapshot-C.npy that every learner wrote for the same C "
            f"({', '.join(f'learner-{i}: {len(of)}' for i, of in enumerate(files))} files): set "
            f"gossip.snapshot_every_s (it is {every_s:g}) to well below the length of the run"
        )
    grams = {number: gram([of_learner[number] for of_learner in files]) for number in numbers}
    return analyse(logs, grams, every_s, staleness, window)


def analyse(
    logs: Sequence[Sequence[Event]],
    grams: dict[int, Array],
    every_s: float,
    staleness: int | None,
    window: int | None,
) -> ConsensusAnalysis:
    """Compute the curves of n learners.

    Args:
        logs: Events of each learner.
        grams: `snapshots.gram` [n, n] of each snapshot that all learners have, by its number.
        every_s: Seconds between two snapshots.
        staleness: τ in local iterations; None is infinite.
        window: Connectivity window B; None is unknown.

    Raises:
        SeedbedError: RUN_DIRECTORY; the logs do not fit each other.
    """
    shown = [with_snapshots(log, sorted(grams), every_s) for log in logs]
    doubtful = set().union(*(doubtful_snapshots(log) for log in shown))
    events = causal_order(
        [[e for e in log if e.kind != "snapshot" or e.iteration not in doubtful] for log in shown]
    )
    n = len(logs)
    steps, rows = mixing_steps(events, n)
    replay = _Replay(steps, rows, n, grams)
    largest = max((norm for norms in replay.norms for norm in norms), default=0.0)
    windows = ContractionWindows(steps, replay.segments, n, rows)
    level = proposition_2(windows, n, largest, staleness, window)
    beta = {norm: replay.envelopes[norm].beta() for norm in NORMS}
    for norm in NORMS:
        _add_propositions(replay, norm, beta[norm], level)
    counts = Counter(event.kind for event in events)
    return ConsensusAnalysis(
        replay.points,
        _marks(events),
        {kind: counts[kind] for kind in COUNTED},
        len(replay.segments),
        beta,
        {norm: replay.envelopes[norm].largest for norm in NORMS},
        level,
    )


class _Replay:
    """One pass over all steps, which computes everything except the two propositions."""

    def __init__(
        self, steps: list[MixingStep], rows: int, learners: int, grams: dict[int, Array]
    ) -> None:
        self._grams = grams
        self._learners = range(learners)
        updates = sum(step.event.kind == "update" for step in steps)
        at_updates = set(np.linspace(0, updates, POINTS + 1).astype(int)[1:].tolist())
        self._products = MixingProducts(learners, rows, updates)
        self.envelopes = self._products.envelopes
        self.points: list[Point] = []
        self.segments: list[tuple[int, int]] = []  # first step, and the one after the last
        self.norms: list[list[float]] = []  # of the updates of each segment
        self.first: list[int] = []  # first update of each segment
        self._shown: dict[int, dict[int, int]] = {}  # snapshot -> learner -> row
        self._since: dict[int, int] = {}  # snapshot -> updates when its first row was taken
        began = steps[0].event.time
        seconds = 0.0
        for at, step in enumerate(steps):
            if step.event.kind == "update" and self._products.updates in at_updates:
                self._add_point(Point(seconds, self._products.updates), self._learners)
            seconds = max(seconds, step.event.time - began)
            if step.lost and self._products.known:
                self.segments[-1] = (self.segments[-1][0], at)
            self._products.apply(step)
            if step.event.kind == "update" and self._products.known:
                self.norms[-1].append(step.event.norm)
            if step.event.kind == "snapshot":
                self._snapshot(seconds, at, step, len(steps))
            self._products.free(step)
        self._add_point(Point(seconds, self._products.updates), self._learners)

    def _snapshot(self, seconds: float, at: int, step: MixingStep, end: int) -> None:
        number = step.event.iteration
        since = self._since.setdefault(number, self._products.updates)
        taken = self._shown.setdefault(number, {})
        assert step.copy_to is not None
        taken[step.event.learner] = step.copy_to
        if len(taken) < len(self._learners):
            return
        shown = [taken[learner] for learner in self._learners]
        inner = self._grams[number]
        if not self._products.known and self._products.begin(shown, inner):
            self.segments.append((at, end))
            self.norms.append([])
            self.first.append(self._products.updates)
        apart = self._products.updates - since
        point = Point(seconds, self._products.updates, snapshot=number, apart=apart)
        identity = np.eye(len(self._learners))
        for norm in NORMS:
            point.values(norm).distance = DISTANCES[norm](identity, inner)
        self._add_point(point, shown)

    def _add_point(self, point: Point, rows: Sequence[int]) -> None:
        """Add a point, with the bounds of these rows, one a learner, if they are known."""
        if self._products.known or point.snapshot is not None:
            self.points.append(point)
        if not self._products.known:
            return
        point.segment = len(self.segments) - 1
        for norm, bounds in self._products.bounds(rows).items():
            values = point.values(norm)
            values.start, values.bound = bounds


def _add_propositions(
    replay: _Replay, norm: Norm, beta: float | None, level: Proposition2 | str
) -> None:
    """Add both propositions to the rest of the start, which the paper takes as zero."""
    sums = [] if beta is None else [proposition_1(norms, beta) for norms in replay.norms]
    for point in replay.points:
        values = point.values(norm)
        if point.segment is None or values.start is None:
            continue
        if sums:
            done = point.updates - replay.first[point.segment]
            values.proposition_1 = values.start + sums[point.segment][done]
        if not isinstance(level, str):
            at_once: float = getattr(level, f"level_{norm}")
            # If clocks differ, updates were made while the snapshots were taken. Each of them
            # counts in full.
            values.proposition_2 = values.start + at_once + point.apart * level.largest_update


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
            what: Literal["void", "graph"] = "void" if event.is_disconnected else "graph"
            marks.append(Mark(seconds, event.learner, what, event.alive))
    return marks
