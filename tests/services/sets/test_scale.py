"""A controller's work grows with the runs that are awake, and hardly with those that wait."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from seedbed.services.sets.spec import Limits
from tests.support.set_cluster import SetCluster, controller, spec

ROUNDS, AWAKE = 10, 8
MOST_BYTES = 1 << 20  # of an object at the API server


class Cost(NamedTuple):
    """What a round takes."""

    calls: float
    cpu_s: float
    state_bytes: int


def cost(folder: Path, runs: int) -> Cost:
    rates = ",".join(f"{1e-5 * (1 + at):.7f}" for at in range(runs))
    cluster = SetCluster(folder)
    wanted = spec(
        f"learner.optimizer.learning_rate={rates}",
        "stop.env_frames=100000000",
        limits=Limits(AWAKE),
    )
    one = controller(cluster, wanted, folder / "set")
    for _ in range(ROUNDS):  # all places are taken
        one.reconcile()
        cluster.step()
    calls, began = cluster.calls, time.process_time()
    for _ in range(ROUNDS):
        one.reconcile()
        cluster.step()
    spent = time.process_time() - began
    assert len(cluster.states()) == runs
    return Cost((cluster.calls - calls) / ROUNDS, spent / ROUNDS, len(cluster.runs_text))


@pytest.mark.slow
def test_a_thousand_runs_cost_a_round_little_more_than_a_hundred(tmp_path: Path) -> None:
    hundred, thousand = cost(tmp_path / "a", 100), cost(tmp_path / "b", 1000)
    print(hundred, thousand)
    assert thousand.calls == hundred.calls <= AWAKE + 3
    assert thousand.cpu_s < 8 * hundred.cpu_s, "of ten times the runs"
    assert thousand.state_bytes < MOST_BYTES / 10
