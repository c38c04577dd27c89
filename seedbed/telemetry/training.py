"""Counts of training."""

import threading
from collections import deque
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.metrics import (
    LATENCY_BOUNDS_S,
    LOSSES,
    Histogram,
    Metric,
    documented,
    gauge,
    histogram,
)
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.windows import RecentValues

LAG_BOUNDS = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500)


class TrainingStats:
    """Updates, and the unrolls that wait for one.

    Attributes:
        waiting_unrolls: Unrolls that wait for training now.
        capacity_unrolls: Unrolls at which the queue holds up inference.
        lag: Updates between acting and training, mean of each trained unroll.
        step_s: Seconds of a training step.
        scalars: Numbers of the newest update, such as `loss`.
        scalars.loss: Loss of the newest update. NaN before the first.
        other_scalars: Every other number of the newest update; a name appears with the first
            update.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        gauge("seedbed_unroll_queue_depth", "waiting_unrolls"),
        gauge("seedbed_unroll_queue_capacity", "capacity_unrolls"),
        histogram("seedbed_policy_lag_updates", "lag"),
        histogram("seedbed_train_step_seconds", "step_s"),
        gauge("seedbed_loss", "scalars.loss", tag=LOSSES),
        gauge("seedbed_training_scalar", "other_scalars", ("name",), tag=LOSSES),
    )

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.lag = Histogram(LAG_BOUNDS)
        self.step_s = Histogram(LATENCY_BOUNDS_S)
        self.recent_lag = RecentValues(4096)
        self.recent_step_s = RecentValues(256)
        self._step_lags: deque[NDArray[np.floating]] = deque(maxlen=256)
        self.scalars: dict[str, float] = {}
        self.waiting_unrolls = self.capacity_unrolls = 0
        self._trained = 0
        # How often the queue's depth was set, and the sum of its fill.
        self._depths = self._fill = 0.0
        self._scalar_sums: dict[str, float] = {}
        self._scalar_updates = 0
        self._lock = threading.Lock()

    def lag_by_step(self) -> list[float]:
        """Return the mean policy lag of each step of an unroll, in updates, of recent batches.

        The steps of an unroll that SEED acts can have newer and newer parameters, those of IMPALA
        all have one version (SEED, Figure 2). Empty before the first update, and with replay.
        """
        lags = list(self._step_lags)
        return np.mean(lags, axis=0).tolist() if lags else []

    @property
    def other_scalars(self) -> dict[str, float]:
        """Numbers of the newest update but its loss."""
        return {name: value for name, value in self.scalars.items() if name != "loss"}

    def on_update(
        self,
        scalars: Mapping[str, float],
        lag_updates: NDArray[np.floating],
        step_s: float,
        trained_frames: int,
        step_lag: NDArray[np.floating] | None = None,
    ) -> None:
        """Count one update of the parameters.

        Args:
            scalars: Numbers of the training step, such as `loss`.
            lag_updates: [B] mean policy lag of each unroll, in parameter versions.
            step_s: Seconds of the training step.
            trained_frames: Emulator frames in the batch.
            step_lag: [T] mean policy lag of each step of the unrolls; None with replay.
        """
        numbers = {name: float(value) for name, value in scalars.items()}
        self.lag.observe_many(lag_updates)
        self.recent_lag.extend(lag_updates)
        if step_lag is not None:
            self._step_lags.append(step_lag)
        self.step_s.observe(step_s)
        self.recent_step_s.append(step_s)
        with self._lock:
            self._counters.updates += 1
            self._counters.trained_frames += trained_frames
            self._trained += trained_frames
            self.scalars = numbers
            for name, value in numbers.items():
                self._scalar_sums[name] = self._scalar_sums.get(name, 0.0) + value
            self._scalar_updates += 1

    def set_queue(self, waiting: int, capacity: int) -> None:
        """Set how many unrolls wait for training, and how many the queue holds.

        Args:
            waiting: Unrolls that wait.
            capacity: Unrolls at which the queue is full; 0 is no queue.
        """
        self.waiting_unrolls, self.capacity_unrolls = waiting, capacity
        if capacity:
            with self._lock:
                self._depths += 1
                self._fill += waiting / capacity

    def take_mean_scalars(self) -> dict[str, float]:
        """Return the scalars' means since the last call; empty without an update."""
        with self._lock:
            sums, updates = self._scalar_sums, self._scalar_updates
            self._scalar_sums, self._scalar_updates = {}, 0
        return {name: total / updates for name, total in sums.items()}

    def totals(self) -> dict[str, float]:
        """Return running totals of this process."""
        with self._lock:
            return {
                "trained_frames": self._trained,
                "updates": self.step_s.total()[0],
                "depths": self._depths,
                "fill": self._fill,
            }
