"""A telemetry with a clock that tests turn, and events of a small run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.config.schema import Experiment
from seedbed.telemetry import Counters, Telemetry


class Clock:
    """Monotonic seconds that only move when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def experiment(**sections: Any) -> Experiment:
    """An experiment that costs 3.6 dollars an hour, a thousandth a second."""
    return Experiment.model_validate(
        {
            "name": "small",
            "environment": {"id": "CartPole-v1"},
            "cost": {"cpu_hour": 1.8, "cpus": 2, "memory_gib_hour": 0.0},
            **sections,
        }
    )


def make(
    run_dir: Path | None, clock: Clock, counters: Counters | None = None, **sections: Any
) -> tuple[Telemetry, io.StringIO]:
    """A telemetry and what it shows."""
    out = io.StringIO()
    telemetry = Telemetry(
        experiment(**sections), run_dir, counters or Counters(), out=out, now=clock
    )
    telemetry.phase = ""
    return telemetry, out


def some_events(telemetry: Telemetry) -> None:
    """10 steps of 4 environments, 5 batches, 2 updates, 3 episodes."""
    telemetry.sessions.connected, telemetry.sessions.environments = 2, 8
    telemetry.inference.waiting = 1
    telemetry.training.set_queue(3, 8)
    for _ in range(10):
        telemetry.sessions.on_step(4, 0.03, 0.01)
    for latency in (0.001, 0.002, 0.003, 0.004, 0.100):
        telemetry.inference.on_batch(6, 8, 0.002, [latency, latency], 0.0005)
    telemetry.training.on_update({"loss": 2.0, "entropy": 0.5}, np.array([0.0, 1.0]), 0.02, 8)
    telemetry.training.on_update({"loss": 4.0, "entropy": 0.5}, np.array([2.0, 3.0]), 0.04, 8)
    telemetry.sessions.on_episodes(np.array([-21.0, 3.0, 0.0]), np.array([10, 20, 30]))
    telemetry.sessions.on_abandoned(2)
    telemetry.sessions.on_discarded(5, "session ended")
    telemetry.sessions.on_stream_error("reward")
    telemetry.checkpoints.on_checkpoint(0.5, 1000, ok=True)
    telemetry.checkpoints.on_checkpoint(0.1, 0, ok=False)
    telemetry.cost.account()  # the training has begun
    telemetry.evaluation.on_evaluation({"mean": 7.0, "episodes": 20, "policy": "greedy"})
