"""Cost of a run: prices of the experiment times what it occupies on this machine."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from seedbed.config.run import Cost
from seedbed.config.schema import Experiment
from seedbed.runtime.limits import share_of_machine
from seedbed.runtime.metrics import Metric, documented, gauge
from seedbed.runtime.tokens import Tokens
from seedbed.telemetry.cost_meter import CostMeterClient
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.status import ChargedStatus

# How long a learner waits for the first answer of its cost meter, before it counts dollars by the
# prices of its machine: those of the section `cost`, which are not the release's.
METER_GRACE_S = 120.0


def dollars_per_hour(cost: Cost) -> float:
    """Return the US dollars an hour of what `cost` charges.

    Args:
        cost: Prices and sizes. A size of 0 charges what this process gets of the machine.
    """
    charged = charged_sizes(cost)
    return (
        cost.cpu_hour * charged["cpus"]
        + cost.memory_gib_hour * charged["memory_gib"]
        + cost.accelerator_hour * charged["accelerators"]
    )


def charged_sizes(cost: Cost) -> ChargedStatus:
    """Return what of this machine `cost` charges, so that other prices can price the same.

    Args:
        cost: Prices and sizes, as for `dollars_per_hour`.
    """
    cores, memory = share_of_machine()
    return {
        "cpus": cost.cpus or cores,
        "memory_gib": cost.memory_gib or memory / 2**30,
        "accelerators": cost.accelerators,
        "metered": bool(cost.meter),
    }


class RunCost:
    """Time and money of a run, counted into its `Counters`.

    Seconds are those of training: from the first frame that this process counts to `end_training`.
    Dollars are those of the whole process, because a machine that loads costs as much.

    Attributes:
        dollars_per_hour: US dollars an hour, by the section `cost`; with a cost meter, the meter's
            rate, and 0 until its first answer or for two minutes.
        budget_dollars: Budget at which the run ends, `stop.dollars`; 0 is none.
        is_over: Training has ended.
        bill: Name of the cost meter's bill; empty before a meter has answered.
        earlier_dollars: US dollars of the run from before this bill, by bills of other releases.
        goal_frames: Emulator frames at which the run ends, `stop.env_frames`; 0 is none.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        gauge("seedbed_run_dollars_per_hour", "dollars_per_hour"),
        gauge("seedbed_run_budget_dollars", "budget_dollars", tag=None),
        gauge("seedbed_run_goal_frames", "goal_frames", tag=None),
    )

    def __init__(
        self,
        experiment: Experiment,
        counters: Counters,
        now: Callable[[], float],
        tokens: Tokens | None = None,
    ) -> None:
        self._own_rate = self.dollars_per_hour = dollars_per_hour(experiment.cost)
        self.budget_dollars = experiment.stop.dollars
        self.goal_frames = experiment.stop.env_frames
        self._counters = counters
        # What this process has added, and how much of it before the meter's first answer.
        self._added = self._unmetered = 0.0
        self._metered = False
        self._meter: CostMeterClient | None = None
        if experiment.cost.meter:
            self._meter = CostMeterClient(experiment.cost.meter, tokens)
            self.dollars_per_hour = 0.0
        self._now = now
        self._began_at = self._accounted_at = now()
        self._frames_before = counters.env_frames
        self._is_training = self.is_over = False
        self.bill, self.earlier_dollars = "", 0.0
        self._lock = threading.Lock()

    @property
    def resumed_dollars(self) -> float:
        """US dollars that this process has begun with: those of before."""
        return max(0.0, self._counters.dollars - self._added)

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Begin with the frames and dollars of before, which the counters have now.

        Args:
            saved: Whatever has the items of `to_json`.
        """
        self._frames_before = self._counters.env_frames
        self.bill = str(saved.get("bill", ""))
        self.earlier_dollars = float(saved.get("earlier_dollars", 0.0))

    def to_json(self) -> dict[str, Any]:
        """Return whose bill the dollars of the counters are."""
        return {"bill": self.bill, "earlier_dollars": self.earlier_dollars}

    def end_training(self) -> None:
        """Count no more seconds."""
        self.account()
        self.is_over = True

    def account(self) -> None:
        """Bring `seconds` and `dollars` of the counters up to date."""
        counters = self._counters
        with self._lock:
            now = self._now()
            passed = max(0.0, now - self._accounted_at)
            self._accounted_at = now
            if self._is_training and not self.is_over:
                counters.seconds += passed
            self._is_training |= counters.env_frames > self._frames_before
            resumed = self.resumed_dollars
            waits = not self._metered and self.dollars_per_hour != self._own_rate
            if waits and now - self._began_at >= METER_GRACE_S:  # what has passed counts, too
                self.dollars_per_hour, passed = self._own_rate, now - self._began_at
            spent = passed / 3600 * self.dollars_per_hour
            counters.dollars += spent
            reading = self._meter.reading if self._meter else None
            if not self._metered:
                self._unmetered += spent
            if reading is not None:
                # The meter prices the actors too, and the time in which no learner ran. It charges
                # this pod from its start, so that it has what was spent before its first answer.
                if self.bill and reading.bill not in ("", self.bill):
                    self.earlier_dollars = resumed
                self.bill = reading.bill or self.bill
                counters.dollars = max(counters.dollars - self._unmetered, reading.dollars)
                self.dollars_per_hour, self._unmetered = reading.dollars_per_hour, 0.0
                self._metered = True
            self._added = counters.dollars - resumed
