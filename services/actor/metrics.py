"""Metrics of an actor, on its own /metrics."""

import threading
from collections import Counter
from typing import ClassVar

from seedbed.envs.failures import CAUSES
from seedbed.runtime.metrics import (
    LATENCY_BOUNDS_S,
    Histogram,
    Metric,
    StatsRegistry,
    counter,
    documented,
    gauge,
    histogram,
)


class ActorMetrics:
    """All counts of one actor process, from 0. Its event loop and the groups' threads write them.

    Attributes:
        steps: Environment steps (steps of a group times its environments) of this actor process.
        step_s: Seconds in which a group took one step of all its environments.
        wait_s: Seconds from the sending of a group's time step until the actor had the actions: the
            end-to-end inference latency.
        reconnects: Connections to the learner after each group's first.
        environment_failures: Failures by cause, after which environments were made anew: an
            exception of the step, of the reset or of the factory, a number that is not finite, an
            observation of a wrong shape or kind, a worker process that died or hung, a group whose
            numbers the learner refused.
        groups: Groups connected to a learner now.
    """

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        counter("seedbed_actor_steps_total", "steps"),
        histogram("seedbed_actor_step_seconds", "step_s"),
        histogram("seedbed_actor_wait_seconds", "wait_s"),
        counter("seedbed_actor_reconnects_total", "reconnects"),
        counter(
            "seedbed_actor_environment_failures_total",
            "environment_failures",
            labels=("cause",),
            known=CAUSES,
        ),
        gauge("seedbed_actor_groups", "groups"),
    )

    def __init__(self) -> None:
        self.step_s = Histogram(LATENCY_BOUNDS_S)
        self.wait_s = Histogram(LATENCY_BOUNDS_S)
        self.steps = self.reconnects = 0
        self.environment_failures = Counter[str]()
        self.connected_groups: set[str] = set()
        self.registry = StatsRegistry(self)
        self._lock = threading.Lock()

    @property
    def groups(self) -> int:
        """Number of groups connected now."""
        return len(self.connected_groups)

    def on_step(self, environments: int, step_s: float, wait_s: float) -> None:
        """Count a step of a group.

        Args:
            environments: environments of the group.
            step_s: seconds that the step took.
            wait_s: seconds that the actor waited for the actions.
        """
        with self._lock:  # a group's thread counts its own steps
            self.step_s.observe(step_s)
            self.wait_s.observe(wait_s)
            self.steps += environments

    def on_failures(self, failures: Counter[str]) -> None:
        """Count failures of environments, by cause.

        Args:
            failures: those since the last call for the same group.
        """
        with self._lock:
            self.environment_failures += failures
