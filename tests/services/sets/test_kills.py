"""A set's controller that is killed at any call starts nothing twice and forgets nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.runs.served_files import BEST_FILE
from seedbed.sets.halving import read_decisions
from seedbed.sets.needs import Limits
from tests.support.set_cluster import SetCluster, controller, kills, spec, until

LR = "learner.optimizer.learning_rate=1e-3,2e-3"
SHORT, TWO = "stop.env_frames=200000", "gossip.replicas=2"
HALVING = {"halving": {"first": 100_000, "factor": 2}}
FILES = {"summary.json": "summary.json", "evaluations.csv": "evaluations.csv",
         BEST_FILE: "best.safetensors"}  # fmt: skip


def check_home(cluster: SetCluster, run: str) -> None:
    """What is left on volumes is at home, before one of them is deleted."""
    assert cluster.states()[run] in ("finished", "pruned")
    home = cluster.folder / "set/runs" / run
    several = (home / "learner-0").is_dir()
    assert (home / "summary.json").exists()
    for claim in cluster.claims_of[run]:  # another one may be gone already
        rank = int(claim.rpartition("-")[2])
        here, volume = home / f"learner-{rank}" if several else home, cluster.volume(run, rank)
        for ours, theirs in FILES.items():
            assert (here / ours).read_bytes() == (volume / theirs).read_bytes()
        assert json.loads((here / "status.json").read_text())["rows_read"] is True


def finish(cluster: SetCluster, wanted: Any) -> None:
    """Reconcile until all runs are over and their volumes are freed."""
    cluster.freed = lambda run: check_home(cluster, run)
    one = controller(cluster, wanted, cluster.folder / "set", frees=True)

    def is_over() -> bool:
        states = {*cluster.states().values()} if cluster.runs_text else {""}
        freed = all(entry.volumes == "freed" for entry in one.book.entries.values())
        return states <= {"finished", "pruned"} and freed

    until(cluster, one, is_over, 200)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learners", "options", "stale_s"),
    [(1, {}, 0.0), (1, {}, 30.0), (1, HALVING, 0.0), (2, {}, 0.0)],
)
def test_a_controller_that_is_killed_at_any_call_starts_nothing_twice_and_forgets_nothing(
    tmp_path: Path, learners: int, options: dict[str, Any], stale_s: float
) -> None:
    settings = (TWO,) if learners == 2 else ()
    wanted = spec(LR, SHORT, *settings, limits=Limits(learners), **options)
    whole = SetCluster(tmp_path / "whole")
    whole.stale_s = stale_s
    whole.folder.mkdir()
    whole.score = lambda one: 1e5 * one.learner.optimizer.learning_rate
    left = kills(whole, lambda: finish(whole, wanted), tmp_path / "killed")
    decisions = read_decisions(whole.folder / "set")
    assert len(decisions) == len(options)
    assert len([call for call in whole.log if "DELETE Persist" in call]) == 2 * learners
    assert len(left) > 40
    for cluster in left:
        finish(cluster, wanted)
        assert sorted(cluster.begun) == sorted(whole.begun), f"killed {cluster.folder.name}"
        assert cluster.states() == whole.states()
        assert read_decisions(cluster.folder / "set") == decisions
        assert cluster.most == learners
        assert {kind for kind, _ in cluster.objects} == {"ConfigMap"}
        assert not any(cluster.claims_of.values()), "and each was deleted once all was home"
