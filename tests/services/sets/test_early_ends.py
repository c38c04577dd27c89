"""Sets on a cluster whose runs end at a score long before stop.env_frames: room and forecast."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.services.sets.metrics import SetMetrics
from tests.support.set_cluster import RATE, STEP_S, SetCluster, controller, spec, until

MANY = "learner.optimizer.learning_rate=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3,7e-3,8e-3"
STEP_DOLLARS = RATE / 3600 * STEP_S
WHOLE = 20 * STEP_DOLLARS  # of a run that takes all its frames
BUDGET = 1.8 * WHOLE


@pytest.mark.parametrize("short", [8, 3])
def test_runs_that_end_early_leave_room_and_the_bound_holds_where_others_do_not(
    tmp_path: Path, short: int
) -> None:
    cluster = SetCluster(tmp_path)
    wanted = spec(MANY, "stop.env_frames=1000000", budget={"dollars": BUDGET})
    first = {run.name for run in wanted.wanted.runs[:short]}
    cluster.frames_to_score = lambda run: 100_000 if run in first else 0
    one = controller(cluster, wanted, tmp_path / "set")

    def finished() -> set[str]:
        return {name for name, state in cluster.states().items() if state == "finished"}

    until(cluster, one, lambda: len(finished()) >= 3)
    forecast = SetMetrics("lab", one).forecast_dollars["lab"]
    until(cluster, one, lambda: not one.book.up())
    assert finished() == first
    spent = float(cluster.data["set"]["dollars"])
    if short == 8:
        assert not one.holds
        assert spent <= forecast < BUDGET, "of the frames that these take"
    else:
        assert "budget.dollars" in one.ended_by
        assert BUDGET <= spent <= BUDGET + 3 * 2 * STEP_DOLLARS, "a few rounds of two runs"
