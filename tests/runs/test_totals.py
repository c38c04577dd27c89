"""What a run has taken, of one learner and of several."""

from __future__ import annotations

import json
from pathlib import Path

from seedbed.runs.totals import Totals, totals_of


def status(path: Path, frames: int, seconds: float, dollars: float) -> None:
    path.mkdir(parents=True, exist_ok=True)
    counters = {"env_frames": frames, "seconds": seconds, "dollars": dollars}
    (path / "status.json").write_text(json.dumps({"counters": counters}))


def test_a_run_without_a_status_has_taken_nothing(tmp_path: Path) -> None:
    assert totals_of(tmp_path) == Totals(0, 0, 0)


def test_several_learners_share_the_time_and_pay_their_last_evaluation(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("gossip: {replicas: 2}\n")
    status(tmp_path / "learner-0", 10, 5, 1)
    status(tmp_path / "learner-1", 20, 7, 2)
    assert totals_of(tmp_path) == Totals(30, 7, 3)
    (tmp_path / "summary.json").write_text(json.dumps({"dollars": 3.5}))
    assert totals_of(tmp_path) == Totals(30, 7, 3.5)


def test_one_learner_has_its_own_counters(tmp_path: Path) -> None:
    status(tmp_path, 10, 5, 1)
    (tmp_path / "summary.json").write_text(json.dumps({"dollars": 9}))
    assert totals_of(tmp_path) == Totals(10, 5, 1)
