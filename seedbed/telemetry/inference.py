"""Counts of inference."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.metrics import LATENCY_BOUNDS_S, Histogram, Metric, gauge, histogram
from seedbed.telemetry.windows import RecentValues

BATCH_BOUNDS = tuple(2**power for power in range(13))

# So many values are cheaper one by one than in NumPy.
_FEW = 8


class InferenceStats:
    """Inference batches, and the requests that wait for one."""

    METRICS: ClassVar[tuple[Metric, ...]] = (
        histogram(
            "seedbed_inference_latency_seconds",
            "Seconds from a request's arrival at the learner until its actions were ready.",
            "latency_s",
        ),
        histogram(
            "seedbed_inference_batch_size", "Environments in an inference batch.", "batch_envs"
        ),
        gauge("seedbed_inference_queue_depth", "Requests that wait for inference now.", "waiting"),
    )

    def __init__(self) -> None:
        self.latency_s = Histogram(LATENCY_BOUNDS_S)
        self.batch_envs = Histogram(BATCH_BOUNDS)
        self.recent_latency_s = RecentValues(8192)
        self.waiting = 0
        self._batches = self._requests = self._envs = self._padded_envs = 0
        self._latency_s = self._oldest_s = self._run_s = 0.0
        self._lock = threading.Lock()

    def on_batch(
        self,
        rows: int,
        padded_rows: int,
        requests: int,
        oldest_wait_s: float,
        latencies_s: Sequence[float] | NDArray[np.floating],
        run_s: float,
    ) -> None:
        """Count one inference batch.

        Args:
            rows: Environments in the batch.
            padded_rows: The batch's size with padding.
            requests: Sessions in the batch.
            oldest_wait_s: How long the oldest request had waited when the batch started.
            latencies_s: Of each request, from its arrival until its actions were ready.
            run_s: How long the computation took.
        """
        if len(latencies_s) <= _FEW:
            for latency in latencies_s:
                self.latency_s.observe(latency)
                self.recent_latency_s.append(latency)
        else:
            self.latency_s.observe_many(latencies_s)
            self.recent_latency_s.extend(latencies_s)
        self.batch_envs.observe(rows)
        with self._lock:
            self._batches += 1
            self._requests += requests
            self._envs += rows
            self._padded_envs += padded_rows
            self._latency_s += sum(latencies_s)
            self._oldest_s += oldest_wait_s
            self._run_s += run_s

    def set_waiting(self, requests: int) -> None:
        """Set how many requests wait for inference now."""
        self.waiting = requests

    @property
    def mean_batch_envs(self) -> float | None:
        """Mean environments in a batch of this process; None before the first batch."""
        return self._envs / self._batches if self._batches else None

    def totals(self) -> dict[str, float]:
        """Return running totals of this process."""
        with self._lock:
            return {
                "batches": self._batches,
                "requests": self._requests,
                "batch_envs": self._envs,
                "padded_envs": self._padded_envs,
                "latency_s": self._latency_s,
                "oldest_s": self._oldest_s,
                "run_s": self._run_s,
            }
