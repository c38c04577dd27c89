"""What an actor counts, for its own /metrics."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from seedbed.runtime.metrics import (
    LATENCY_BOUNDS_S,
    Histogram,
    Metric,
    TableCollector,
    Value,
    registry_of,
)

METRICS = (
    Metric(
        "seedbed_actor_steps_total",
        "counter",
        "Environment steps (environments times steps of their group) of this actor process.",
    ),
    Metric(
        "seedbed_actor_step_seconds",
        "histogram",
        "Seconds in which a group took one step of all its environments.",
    ),
    Metric(
        "seedbed_actor_wait_seconds",
        "histogram",
        "Seconds that the actor stood still for a group's actions.",
    ),
    Metric(
        "seedbed_actor_reconnects_total",
        "counter",
        "Connections to the learner after each group's first.",
    ),
    Metric(
        "seedbed_actor_environment_failures_total",
        "counter",
        "Environments that raised and were made anew.",
    ),
    Metric("seedbed_actor_groups", "gauge", "Groups connected to a learner now."),
)


class ActorMetrics:
    """All counts of one actor process, from 0. Thread-safe."""

    def __init__(self) -> None:
        self._step_seconds = Histogram(LATENCY_BOUNDS_S)
        self._wait_seconds = Histogram(LATENCY_BOUNDS_S)
        self._lock = threading.Lock()
        self._steps = 0
        self._reconnects = 0
        self._environment_failures = 0
        self._groups = 0
        self.registry = registry_of(TableCollector(METRICS, self._read))

    def on_step(self, environments: int, step_s: float, wait_s: float) -> None:
        """A group of `environments` took a step in `step_s`, after `wait_s` for its actions."""
        self._step_seconds.observe(step_s)
        self._wait_seconds.observe(wait_s)
        with self._lock:
            self._steps += environments

    def on_reconnect(self) -> None:
        """A group connects again."""
        with self._lock:
            self._reconnects += 1

    def on_environment_failure(self, environments: int = 1) -> None:
        """Environments raised and are made anew."""
        with self._lock:
            self._environment_failures += environments

    def set_groups(self, connected: int) -> None:
        """So many groups are connected to a learner now."""
        with self._lock:
            self._groups = connected

    def _read(self) -> Mapping[str, Value]:
        with self._lock:
            return {
                "seedbed_actor_steps_total": self._steps,
                "seedbed_actor_step_seconds": self._step_seconds,
                "seedbed_actor_wait_seconds": self._wait_seconds,
                "seedbed_actor_reconnects_total": self._reconnects,
                "seedbed_actor_environment_failures_total": self._environment_failures,
                "seedbed_actor_groups": self._groups,
            }
