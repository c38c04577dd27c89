"""Counts of inference."""

import threading
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.metrics import (
    LATENCY_BOUNDS_S,
    Histogram,
    Metric,
    documented,
    gauge,
    histogram,
)
from seedbed.telemetry.windows import RecentValues

BATCH_BOUNDS = tuple(2**power for power in range(13))

# So many values are cheaper one by one than in NumPy.
_FEW = 8


class InferenceStats:
    """Inference batches, and the requests that wait for one.

    Attributes:
        latency_s: Seconds from a request's arrival at the learner until its actions were ready.
        batch_envs: Environments in an inference batch.
        waiting: Requests that wait for inference now.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        histogram("seedbed_inference_latency_seconds", "latency_s"),
        histogram("seedbed_inference_batch_size", "batch_envs"),
        gauge("seedbed_inference_queue_depth", "waiting"),
    )

    def __init__(self) -> None:
        self.latency_s = Histogram(LATENCY_BOUNDS_S)
        self.batch_envs = Histogram(BATCH_BOUNDS)
        self.recent_latency_s = RecentValues(8192)
        self.waiting = 0
        self._padded_envs = 0
        self._oldest_s = self._run_s = 0.0
        self._lock = threading.Lock()

    def on_batch(
        self,
        rows: int,
        padded_rows: int,
        oldest_wait_s: float,
        latencies_s: Sequence[float] | NDArray[np.floating],
        run_s: float,
    ) -> None:
        """Count one inference batch.

        Args:
            rows: Environments in the batch.
            padded_rows: The batch's size with padding.
            oldest_wait_s: How long the oldest request had waited when the batch started.
            latencies_s: Seconds [requests] from the arrival of each until its actions were ready.
            run_s: From the dispatch until the actions were sent. Two batches can be in flight.
        """
        with self._lock:
            if len(latencies_s) <= _FEW:
                for latency in latencies_s:
                    self.latency_s.observe(latency)
                    self.recent_latency_s.append(latency)
            else:
                self.latency_s.observe_many(latencies_s)
                self.recent_latency_s.extend(latencies_s)
            self.batch_envs.observe(rows)
            self._padded_envs += padded_rows
            self._oldest_s += oldest_wait_s
            self._run_s += run_s

    def totals(self) -> dict[str, float]:
        """Return running totals of this process."""
        with self._lock:
            batches, envs = self.batch_envs.total()
            requests, latency_s = self.latency_s.total()
            return {
                "batches": batches,
                "requests": requests,
                "batch_envs": envs,
                "padded_envs": self._padded_envs,
                "latency_s": latency_s,
                "oldest_s": self._oldest_s,
                "run_s": self._run_s,
            }
