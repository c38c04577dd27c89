"""Metrics of the controller of a set, read from `SetMetrics`.

Attributes:
    runs: Runs by state.
    frames: Emulator frames of all runs together.
    dollars: US dollars of all runs together.
    dollars_per_hour: US dollars an hour that the awake runs cost.
    forecast_dollars: US dollars at the end of the set, at the price of a frame so far. Absent
        before the first frame, and where runs have no stop.env_frames.
    bounds: Bounds of the whole set; absent without one.
    limits: The most that all awake runs together may have; absent without one.
    awake: What the awake runs have.
    states: State of each run: always 1.
    scores: Mean return of the newest evaluation of each run; absent before.
    idle: Seconds since an awake run was last seen with new frames.
    refused: Runs that wait because the API server has refused one of their objects or pods.
    calls: Calls to the API server.
    errors: Calls and files that failed, by part.
    reconciled_at: Unix time of the end of the last round.
"""

import time
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from seedbed.runtime.metrics import Metric, counter, documented, gauge

if TYPE_CHECKING:
    from seedbed.services.sets.controller import SetController

ERROR_PARTS = ("secrets", "state", "pods", "rows", "folder", "end", "runs", "admission")

METRICS = documented(
    __doc__,
    gauge("seedbed_set_runs", "runs", ("set", "state")),
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

    @property
    def runs(self) -> dict[tuple[str, str], float]:
        """Runs by state."""
        counts = Counter(row["state"] for row in self._of.page.rows.values())
        return {(self._name, state): float(number) for state, number in counts.items()}

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
        rows = self._of.page.rows.values()
        frames, dollars = self._of.page.frames, self._of.page.dollars
        if not frames or not all(row["goal"] for row in rows):
            return {}
        open_states = ("waiting", "starting", "training", "ending", "at its rung", "paused")
        left = sum(
            max(0, row["goal"] - row["frames"]) for row in rows if row["state"] in open_states
        )
        return {self._name: dollars + left * dollars / frames}

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
        up = self._of.book.up().values()
        sums = {
            "learners": sum(one.learners for one in up),
            "actors": sum(one.actors for one in up),
            "gpus": sum(one.gpus for one in up),
        }
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
    def refused(self) -> dict[str, float]:
        """Runs that were refused."""
        entries = list(self._of.book.entries.values())
        waiting = sum(one.end == "refused" and not one.is_up for one in entries)
        return {self._name: float(waiting)}

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
        return {self._name: self._of.reconciled_at}
