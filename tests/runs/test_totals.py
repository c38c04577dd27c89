"""What a run has taken, of one learner and of several."""

from __future__ import annotations

import json
from pathlib import Path

from seedbed.runs.totals import Totals, totals_of


def status(path: Path, frames: int, seconds: float, dollars: float, metered: bool = False) -> None:
    path.mkdir(parents=True, exist_ok=True)
    counters = {"env_frames": frames, "seconds": seconds, "dollars": dollars}
    (path / "status.json").write_text(
        json.dumps({"counters": counters, "charged": {"metered": metered}})
    )


def test_a_run_without_a_status_has_taken_nothing(tmp_path: Path) -> None:
    assert totals_of(tmp_path) == Totals(0, 0, 0)


def test_several_learners_share_the_time_and_pay_their_last_evaluation(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("gossip: {replicas: 2}\n")
    status(tmp_path / "learner-0", 10, 5, 1)
    status(tmp_path / "learner-1", 20, 7, 2)
    assert totals_of(tmp_path) == Totals(30, 7, 3)
    (tmp_path / "summary.json").write_text(json.dumps({"dollars": 3.5}))
    assert totals_of(tmp_path) == Totals(30, 7, 3.5)


def test_learners_that_have_left_count(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("gossip: {replicas: 1}\n")
    for rank in range(4):
        status(tmp_path / f"learner-{rank}", 10, 5, 1)
    assert totals_of(tmp_path) == Totals(40, 5, 4)


def test_a_meter_tells_each_learner_the_bill_of_all(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("gossip: {replicas: 2}\n")
    for rank, dollars in enumerate((3.0, 3.5)):
        status(tmp_path / f"learner-{rank}", 10, 5, dollars, metered=True)
    assert totals_of(tmp_path) == Totals(20, 5, 3.5)


def test_one_learner_has_its_own_counters(tmp_path: Path) -> None:
    status(tmp_path, 10, 5, 1)
    (tmp_path / "summary.json").write_text(json.dumps({"dollars": 9}))
    assert totals_of(tmp_path) == Totals(10, 5, 1)
