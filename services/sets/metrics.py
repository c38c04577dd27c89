"""Metrics of the controller of a set, read from `SetMetrics`.

Attributes:
    runs: Runs by state.
    held: 1 where something keeps the runs that wait from starting, beside the limits: a person's
        `pause`, the `budget` (no other run fits, with nothing awake), want of `room` on the
        controller's volume, `failures` that are alike, or `settings` that the set refuses.
    frames: Emulator frames of all runs together.
    dollars: US dollars of all runs together.
    dollars_per_hour: US dollars an hour that the awake runs cost.
    forecast_dollars: US dollars when all runs have reached stop.env_frames, with halving their next
        rungs, at the price of a frame so far; with fewer frames, as they are reserved, where runs
        have ended long before. Absent before the first frame, and where a run has no
        stop.env_frames.
    bounds: Bounds of the whole set; absent without one.
    limits: The most that all awake runs together may have; absent without one.
    awake: What the awake runs have.
    states: State of each run: always 1.
    scores: Mean return of the newest evaluation of each run; absent before.
    idle: Seconds since an awake run was last seen with new frames.
    failures: Failures of each run's learner, whether a restart followed or not.
    preemptions: Pods of each run's learner that a drain, an eviction or the loss of a node has
        taken. They are no failures: the run resumes any number of times.
    refused: Runs that wait because the API server has refused one of their objects or pods.
    calls: Calls to the API server.
    errors: Calls and files that failed, by part.
    reconciled_at: Unix time of the end of the last round. Absent before the first one.
"""

import time
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from seedbed.runtime.metrics import Metric, counter, documented, gauge

if TYPE_CHECKING:
    from seedbed.services.sets.controller import SetController

STATES = (
    *("waiting", "starting", "training", "ending", "at its rung", "paused"),
    *("finished", "failed", "diverged", "pruned"),
)
_OPEN = STATES[:6]  # these go on
HOLDS = ("pause", "budget", "room", "failures", "settings")
ERROR_PARTS = ("secrets", "state", "pods", "rows", "folder", "end", "runs", "volumes", "admission")

METRICS = documented(
    __doc__,
    gauge("seedbed_set_runs", "runs", ("set", "state")),
    gauge("seedbed_set_held", "held", ("set", "by")),
    gauge("seedbed_set_frames", "frames", ("set",)),
    gauge("seedbed_set_dollars", "dollars", ("set",)),
    gauge("seedbed_set_dollars_per_hour", "dollars_per_hour", ("set",)),
    gauge("seedbed_set_forecast_dollars", "forecast_dollars", ("set",)),
    gauge("seedbed_set_bound", "bounds", ("set", "resource")),
    gauge("seedbed_set_limit", "limits", ("set", "resource")),
    gauge("seedbed_set_awake", "awake", ("set", "resource")),
    gauge("seedbed_set_run_state", "states", ("set", "run", "state")),
    gauge("seedbed_set_run_score", "scores", ("set", "run")),
    gauge("seedbed_set_run_idle_seconds", "idle", ("set", "run")),
    counter("seedbed_set_run_failures_total", "failures", ("set", "run")),
    counter("seedbed_set_run_preemptions_total", "preemptions", ("set", "run")),
    gauge("seedbed_set_refused", "refused", ("set",)),
    counter("seedbed_set_calls_total", "calls", ("set",)),
    counter("seedbed_set_errors_total", "errors", ("set", "part")),
    gauge("seedbed_set_last_reconcile_timestamp_seconds", "reconciled_at", ("set",)),
)


class SetMetrics:
    """The metrics of one controller.

    Args:
        name: Name of the set.
        controller: Its controller.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = METRICS

    def __init__(self, name: str, controller: "SetController") -> None:
        self._name, self._of = name, controller
        self._begun = controller.reconciled_at

    @property
    def runs(self) -> dict[tuple[str, str], float]:
        """Runs by state."""
        counts = Counter(row["state"] for row in self._of.page.rows.values())
        return {(self._name, state): float(counts[state]) for state in STATES}

    @property
    def held(self) -> dict[tuple[str, str], float]:
        """What keeps runs from starting."""
        of, holds = self._of, self._of.holds
        found = ""
        if holds.startswith("paused: "):
            found = "pause"
        elif of.ended_by:
            found = "budget"
        elif of.shortage:
            found = "room"
        elif holds == of.admission.brake:
            found = "failures" if holds else ""
        elif holds != of.admission.bound:
            found = "settings"
        elif not of.book.up():
            found = "budget"  # beside awake runs it is only full for a while
        return {(self._name, one): float(one == found) for one in HOLDS}

    @property
    def frames(self) -> dict[str, float]:
        """Emulator frames of all runs together."""
        return {self._name: float(self._of.page.frames)}

    @property
    def dollars(self) -> dict[str, float]:
        """US dollars of all runs together."""
        return {self._name: self._of.page.dollars}

    @property
    def dollars_per_hour(self) -> dict[str, float]:
        """US dollars an hour of the awake runs."""
        return {self._name: self._of.dollars_per_hour}

    @property
    def forecast_dollars(self) -> dict[str, float]:
        """US dollars at the end of the set."""
        page = self._of.page
        frames, dollars = page.frames, page.dollars
        goes_on = {name: row for name, row in page.rows.items() if row["state"] in _OPEN}
        if not frames or not all(map(self._has_goal, goes_on)):
            return {}
        members, lengths = self._of.members, self._of.admission.spending.lengths
        going = [(members[name].experiment, row["frames"]) for name, row in goes_on.items()]
        left = lengths.left_of_all(going)
        return {self._name: dollars + left * dollars / frames}

    def _has_goal(self, run: str) -> bool:
        """Return whether the frames to which a run trains are known."""
        member = self._of.members.get(run)
        return member is not None and member.experiment.stop.env_frames > 0

    @property
    def bounds(self) -> dict[tuple[str, str], float]:
        """Bounds of the whole set."""
        bounds = self._of.budget.model_dump()
        return {(self._name, name): float(most) for name, most in bounds.items() if most}

    @property
    def limits(self) -> dict[tuple[str, str], float]:
        """The most that all awake runs may have."""
        most = self._of.limits._asdict()
        return {(self._name, name): float(number) for name, number in most.items() if number}

    @property
    def awake(self) -> dict[tuple[str, str], float]:
        """What the awake runs have."""
        sums = self._of.book.taken()._asdict()
        return {(self._name, name): float(number) for name, number in sums.items()}

    @property
    def states(self) -> dict[tuple[str, str, str], float]:
        """State of each run."""
        return {(self._name, name, row["state"]): 1.0 for name, row in self._of.page.rows.items()}

    @property
    def scores(self) -> dict[tuple[str, str], float]:
        """Score of each run."""
        return {
            (self._name, name): row["score"]
            for name, row in self._of.page.rows.items()
            if row["score"] is not None
        }

    @property
    def idle(self) -> dict[tuple[str, str], float]:
        """Seconds without new frames."""
        now = time.time()
        return {(self._name, name): now - at for name, (_, at) in list(self._of.page.moved.items())}

    @property
    def failures(self) -> dict[tuple[str, str], float]:
        """Failures of each run's learner."""
        rows = self._of.page.rows
        return {(self._name, name): float(row["failures"]) for name, row in rows.items()}

    @property
    def preemptions(self) -> dict[tuple[str, str], float]:
        """Pods that others have taken from each run."""
        rows = self._of.page.rows
        return {(self._name, name): float(row["preemptions"]) for name, row in rows.items()}

    @property
    def refused(self) -> dict[str, float]:
        """Runs that were refused."""
        entries = list(self._of.book.entries.values())
        return {self._name: float(sum(one.end == "refused" for one in entries))}

    @property
    def calls(self) -> dict[str, float]:
        """Calls to the API server."""
        return {self._name: float(self._of.calls)}

    @property
    def errors(self) -> dict[tuple[str, str], float]:
        """Failures by part."""
        return {(self._name, part): float(self._of.errors[part]) for part in ERROR_PARTS}

    @property
    def reconciled_at(self) -> dict[str, float]:
        """When the last round has ended."""
        at = self._of.reconciled_at
        # At its start the command sets the time from which it counts.
        return {} if at == self._begun else {self._name: at}
