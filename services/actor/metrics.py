"""Metrics of an actor, on its own /metrics."""

from __future__ import annotations

import threading
from typing import ClassVar

from seedbed.runtime.metrics import (
    LATENCY_BOUNDS_S,
    Histogram,
    Metric,
    StatsCollector,
    counter,
    gauge,
    histogram,
    registry_of,
)


class ActorMetrics:
    """All counts of one actor process, from 0. Thread-safe."""

    METRICS: ClassVar[tuple[Metric, ...]] = (
        counter(
            "seedbed_actor_steps_total",
            "Environment steps (steps of a group times its environments) of this actor process.",
            "steps",
        ),
        histogram(
            "seedbed_actor_step_seconds",
            "Seconds in which a group took one step of all its environments.",
            "step_s",
        ),
        histogram(
            "seedbed_actor_wait_seconds",
            "Seconds that the actor waited for a group's actions.",
            "wait_s",
        ),
        counter(
            "seedbed_actor_reconnects_total",
            "Connections to the learner after each group's first.",
            "reconnects",
        ),
        counter(
            "seedbed_actor_environment_failures_total",
            "Environments that raised and were made anew.",
            "environment_failures",
        ),
        gauge(
            "seedbed_actor_groups",
            "Groups connected to a learner now.",
            lambda s: len(s.connected_groups),
        ),
    )

    def __init__(self) -> None:
        self.step_s = Histogram(LATENCY_BOUNDS_S)
        self.wait_s = Histogram(LATENCY_BOUNDS_S)
        self.steps = self.reconnects = self.environment_failures = 0
        # Names of the groups connected now.
        self.connected_groups: set[str] = set()
        self._lock = threading.Lock()
        self.registry = registry_of(StatsCollector(self))

    def on_step(self, environments: int, step_s: float, wait_s: float) -> None:
        """Count a step of a group that took `step_s`, after waiting `wait_s` for its actions."""
        self.step_s.observe(step_s)
        self.wait_s.observe(wait_s)
        with self._lock:
            self.steps += environments

    def on_reconnect(self) -> None:
        """Count a group that connects again."""
        with self._lock:
            self.reconnects += 1

    def on_environment_failure(self, environments: int = 1) -> None:
        """Count environments that raised and are made anew."""
        with self._lock:
            self.environment_failures += environments

    def on_connected(self, group: str) -> None:
        """Count a group as connected to a learner."""
        with self._lock:
            self.connected_groups.add(group)

    def on_disconnected(self, group: str) -> None:
        """Stop counting a group as connected, if it was."""
        with self._lock:
            self.connected_groups.discard(group)
