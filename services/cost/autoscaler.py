"""The number of actors at which a frame costs least.

With n actors a release costs C(n) an hour and plays F(n) frames an hour. Another actor is worth its
price while the frames that it adds cost less than the mean, C(n) / F(n): just then the mean falls.
The mean is measured at one number of actors after the other, in steps that double while it falls
and halve where it rises on both sides; at the end of the search the cheapest number stays. It is
the cheapest of all where the mean falls up to one number and rises beyond it.
"""

import logging
import math
from typing import NamedTuple

from pydantic import Field

from seedbed.runtime.text import counted
from seedbed.services.cost.price_table import Row

log = logging.getLogger(__name__)

# From the moment all actors run to the first counted frame, and how long is counted.
SETTLE_S, WINDOW_S = 30.0, 120.0
# How long a cluster may take to run the actors that are wanted.
PATIENCE_S = 600.0
# One of so many actors may be away in a window: Spot takes one now and then.
SPARE = 8
# A search ends at steps of this part of the actors.
FINEST = 16
# The search begins anew where the mean is so much off, in so many windows in a row.
DRIFT, DRIFT_WINDOWS = 0.25, 3


class AutoscalerSettings(Row):
    """The meter chooses the number of actors by what a frame costs."""

    enabled: bool = Field(False, description="Whether it does.")
    minReplicas: int = Field(1, ge=1, description="Fewest actors.")
    maxReplicas: int = Field(50, ge=1, description="Most actors.")


class Sample(NamedTuple):
    """A release at one moment.

    Attributes:
        at: Monotonic time, in seconds.
        frames: Frames of all learners since their start.
        running: Actors that run.
        wanted: Actors that the Deployment asks for.
        dollars_per_hour: What the release costs.
        trains: Whether every learner answers, and trains.
    """

    at: float
    frames: int
    running: int
    wanted: int
    dollars_per_hour: float
    trains: bool = True


class Autoscaler:
    """A search for the cheapest number of actors.

    Attributes:
        means: Measured US dollars for a billion frames, by number of actors; infinite where the
            cluster did not run so many.
        holds: Whether the search has ended.
    """

    def __init__(self, settings: AutoscalerSettings) -> None:
        """Begin a search at whatever number of actors there is."""
        self._settings = settings
        self.means: dict[int, float] = {}
        self.holds = False
        self._wanted = -1
        self._step, self._grows, self._drifts = 1, True, 0
        self._asked_at = 0.0
        # Begin of the window, the sample before, since when actors are missing, dollars until now.
        self._window: Sample | None = None
        self._newest: Sample | None = None
        self._short_at: float | None = None
        self._spent = 0.0

    def target(self, sample: Sample) -> int | None:
        """Return the number of actors to scale to; None: the present one.

        A Deployment at zero stays at zero.
        """
        if not sample.wanted:
            self._window = None
            return None
        if sample.wanted != self._wanted:  # the first sample, or another hand scaled
            self._restart(sample)
        bounded = self._bounded(sample.wanted)
        if bounded != sample.wanted:
            return self._ask(bounded, sample)
        mean = self._measure(sample)
        if mean is None:
            return None
        if not self.holds:
            return self._search(mean, sample)
        self._watch_drift(mean)
        return None

    def _measure(self, sample: Sample) -> float | None:
        """Return the mean of a full window; None before its end."""
        began, before, self._newest = self._window, self._newest, sample
        if not sample.wanted - sample.wanted // SPARE <= sample.running <= sample.wanted:
            self._window = None
            if self._short_at is None:
                self._short_at = sample.at
            short_s = sample.at - max(self._asked_at, self._short_at)
            if self.holds or short_s < PATIENCE_S:
                return None
            log.info("%d of %d actors run: the cluster has no room", sample.running, sample.wanted)
            return math.inf
        self._short_at = None
        if not sample.trains or (before is not None and sample.frames < before.frames):
            self._window = None  # a learner is away, or has gone on from a checkpoint
        elif began is None or before is None:
            self._window = sample._replace(at=sample.at + SETTLE_S)
        elif sample.at < began.at:
            self._window, self._spent = sample._replace(at=began.at), 0.0
        else:
            self._spent += before.dollars_per_hour * (sample.at - before.at) / 3600
            if sample.at >= began.at + WINDOW_S:
                frames, spent = sample.frames - began.frames, self._spent
                self._window, self._spent = sample, 0.0
                return spent / frames * 1e9 if frames else math.inf
        return None

    def _search(self, mean: float, sample: Sample) -> int | None:
        self.means[sample.wanted] = mean
        best = self._best()
        if self._grows and sample.wanted == best and len(self.means) > 1:
            self._step *= 2
        while True:
            for number in (best + self._step, best - self._step):
                number = self._bounded(number)
                if number not in self.means:
                    return self._ask(number, sample)
            self._grows = False
            if self._step <= max(1, best // FINEST):
                break
            self._step //= 2
        self.holds = True
        log.info("%s: %.4g dollars for a billion frames", counted(best, "actor"), self.means[best])
        return self._ask(best, sample) if best != sample.wanted else None

    def _watch_drift(self, mean: float) -> None:
        expected = self.means[self._best()]
        self._drifts = self._drifts + 1 if abs(mean / expected - 1) > DRIFT else 0
        if self._drifts >= DRIFT_WINDOWS:
            log.info("%.4g dollars for a billion frames, not %.4g: a new search", mean, expected)
            self._wanted = -1

    def _ask(self, number: int, sample: Sample) -> int:
        self._wanted, self._asked_at, self._window = number, sample.at, None
        return number

    def _restart(self, sample: Sample) -> None:
        self.means, self.holds, self._grows, self._drifts = {}, False, True, 0
        self._step = max(1, sample.wanted // 4)
        self._wanted, self._asked_at, self._window = sample.wanted, sample.at, None

    def _best(self) -> int:
        return min(self.means, key=lambda number: (self.means[number], number))

    def _bounded(self, number: int) -> int:
        return min(max(number, self._settings.minReplicas), self._settings.maxReplicas)
