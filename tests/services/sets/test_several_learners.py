"""Runs of several learners in a set on a cluster in memory: limits, rows, ends, volumes, kills."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.launch.learners_view import run_summary
from seedbed.runs.served_files import BEST_FILE
from seedbed.sets.folder import read_members
from seedbed.sets.needs import Limits
from seedbed.sets.runs import load_runs
from tests.support.set_cluster import RATE, STEP_S, SetCluster, controller, spec, until

LR = "learner.optimizer.learning_rate=1e-3,2e-3"
TWO = "gossip.replicas=2"
FRAMES = 400_000
STOP, LONG = f"stop.env_frames={FRAMES}", "stop.env_frames=1500000"
FILES = {"evaluations.csv": "evaluations.csv", "summary.json": "summary.json",
         BEST_FILE: "best.safetensors"}  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> SetCluster:
    return SetCluster(tmp_path)


def all_are(cluster: SetCluster, *states: str) -> bool:
    return set(cluster.states().values()) <= set(states)


def is_home(cluster: SetCluster, folder: Path, run: str, rank: int) -> bool:
    """Whether a learner's folder has all that it has written at its end."""
    home, volume = folder / "runs" / run / f"learner-{rank}", cluster.volume(run, rank)
    same = [
        (home / ours).read_bytes() == (volume / theirs).read_bytes()
        for ours, theirs in FILES.items()
        if ours != BEST_FILE or (home / ours).exists()
    ]
    return all(same) and json.loads((home / "status.json").read_text())["rows_read"] is True


@pytest.mark.parametrize(("limit", "most"), [(2, 2), (3, 2), (4, 4)])
def test_a_run_takes_as_many_places_as_it_has_learners(
    cluster: SetCluster, tmp_path: Path, limit: int, most: int
) -> None:
    folder = tmp_path / "set"
    one = controller(cluster, spec(LR, TWO, STOP, limits=Limits(limit)), folder)
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert cluster.most == most
    assert {kind for kind, _ in cluster.objects} == {"ConfigMap"}, "the pods are gone"
    for member in read_members(folder):
        assert all(is_home(cluster, folder, member.name, rank) for rank in range(2))
        row = cluster.rows[member.name]
        assert member.is_finished
        assert member.frames == row["frames"] == FRAMES
        assert row["score"] == 100.5, "each learner has played its own episodes"
        bill = float(cluster.data[member.name]["dollars"])
        assert row["dollars"] == pytest.approx(bill, abs=2e-6)
        assert member.summary()["dollars"] <= bill, "the meter tells each learner the bill of both"
        assert len(member.summary()["learners"]) == 2
    spent = sum(float(cluster.data[member.name]["dollars"]) for member in read_members(folder))
    assert float(cluster.data["set"]["dollars"]) == pytest.approx(spent, rel=0.01)
    assert not sum(one.errors.values())


def test_runs_of_one_learner_wait_behind_one_of_several(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted = spec("gossip.replicas=1,4,2", STOP, limits=Limits(4))
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert cluster.begun == [run.name for run in wanted.wanted.runs]
    assert cluster.most == 4


def test_the_bound_counts_the_bill_of_all_learners(cluster: SetCluster, tmp_path: Path) -> None:
    dollars = 20 * RATE / 3600 * STEP_S
    wanted = spec(LR, TWO, "stop.env_frames=20000000", budget={"dollars": dollars},
                  limits=Limits(2))  # fmt: skip
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: bool(one.ended_by) and not one.book.up())
    spent = float(cluster.data["set"]["dollars"])
    assert dollars <= spent <= dollars + 6 * RATE / 3600 * STEP_S


def test_a_learner_that_has_lost_its_volume_begins_anew(
    cluster: SetCluster, tmp_path: Path
) -> None:
    wanted, folder = spec(TWO, LONG), tmp_path / "set"
    name = wanted.wanted.runs[0].name
    one = controller(cluster, wanted, folder)
    until(cluster, one, lambda: cluster.states()[name] == "training")
    shutil.rmtree(cluster.volume(name, 1))
    cluster.away.add(f"{name}-learner-1")
    for _ in range(4):
        one.reconcile()
        cluster.step()
    assert cluster.states()[name] == "training"
    cluster.away.clear()
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert all(is_home(cluster, folder, name, rank) for rank in range(2))
    assert cluster.rows[name]["frames"] == 1_500_000


@pytest.mark.parametrize(("finishes", "came"), [(True, True), (True, False), (False, True)])
def test_a_learner_that_stays_away_ends_nothing(
    cluster: SetCluster, tmp_path: Path, finishes: bool, came: bool
) -> None:
    """The meter waits two minutes for it, and the run has what the others have done."""
    wanted, folder = spec(TWO, STOP), tmp_path / "set"
    name = wanted.wanted.runs[0].name
    one = controller(cluster, wanted, folder, frees=True)
    away = {f"{name}-learner-{rank}" for rank in range(int(finishes), 2)}
    cluster.away |= set() if came else away
    until(cluster, one, lambda: cluster.states()[name] == "training")
    cluster.away |= away
    for _ in range(60):
        one.reconcile()
        cluster.step()
    assert cluster.states()[name] == ("finished" if finishes else "training")
    if finishes:
        (member,) = read_members(folder)
        if came:
            assert member.summary()["learners"][1] is None
        assert "its volumes are kept: not all" in cluster.rows[name]["reason"]
        assert len(cluster.claims_of[name]) == 1 + came


def test_a_run_whose_second_learner_is_refused_leaves(cluster: SetCluster, tmp_path: Path) -> None:
    wanted = spec(LR, TWO, STOP, limits=Limits(2))
    bad, other = (run.name for run in wanted.wanted.runs)
    full = {"is": True}
    cluster.makes_pods = lambda pod: (
        "exceeded quota: rl" if full["is"] and pod == f"{bad}-learner-1" else ""
    )
    one = controller(cluster, wanted, tmp_path / "set")
    until(cluster, one, lambda: cluster.states()[other] == "finished")
    until(cluster, one, lambda: cluster.states()[bad] == "waiting")
    assert "exceeded quota" in cluster.rows[bad]["reason"]
    full["is"] = False
    until(cluster, one, lambda: all_are(cluster, "finished"))


def test_a_pause_a_lower_limit_and_a_later_stop(cluster: SetCluster, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    one = controller(cluster, spec(LR, TWO, LONG, limits=Limits(4)), folder)
    until(cluster, one, lambda: all_are(cluster, "training"))
    first, second = cluster.states()
    one = controller(cluster, spec(LR, TWO, LONG, limits=Limits(3)), folder)
    until(cluster, one, lambda: cluster.states()[second] == "waiting")
    assert cluster.states()[first] == "training"
    cluster.data["set"][f"paused.{first}"] = "for a talk"
    until(cluster, one, lambda: cluster.states()[second] == "finished")
    assert cluster.states()[first] == "paused"
    del cluster.data["set"][f"paused.{first}"]
    until(cluster, one, lambda: all_are(cluster, "finished"))
    one = controller(cluster, spec(LR, TWO, "stop.env_frames=2000000", limits=Limits(2)), folder)
    until(cluster, one, lambda: "training" in cluster.states().values())
    one.reconcile()
    assert not (folder / "runs" / first / "summary.json").exists(), "it goes on"
    until(cluster, one, lambda: all_are(cluster, "finished"))
    assert {row["frames"] for row in cluster.rows.values()} == {2_000_000}


@pytest.mark.slow
def test_a_person_is_shown_what_one_machine_would_show(
    cluster: SetCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, here = tmp_path / "set", tmp_path / "here"
    one = controller(cluster, spec(LR, TWO, STOP, seeds=2, limits=Limits(4)), folder)
    until(cluster, one, lambda: all_are(cluster, "finished"))
    shutil.copytree(folder, here)
    for member in read_members(here):  # as `seedbed train --learners 2` leaves a run
        evaluation = member.summary()["evaluation"]
        shutil.rmtree(member.run)
        shutil.copytree(cluster.volumes / member.name, member.run)
        for rank in range(2):
            status = folder / "runs" / member.name / f"learner-{rank}/status.json"
            shutil.copy(status, member.run / f"learner-{rank}")
        shutil.copy(member.run / "learner-0/experiment.yaml", member.run)
        (member.run / "seedbed.lock").touch()
        read: list[list[Any]] = [
            [json.loads((one / name).read_text()) for one in sorted(member.run.glob("learner-*"))]
            for name in ("status.json", "summary.json")
        ]
        summary = run_summary(*read, evaluation, 0.0)
        (member.run / "summary.json").write_text(json.dumps(summary))
    found = []
    for place in (folder, here):
        assert len(load_runs(place).records) == 4, "a learner is no run"
        assert main(["compare", str(place), "--json"]) == 0
        assert main(["status", str(place)]) == 0
        found.append(capsys.readouterr().out.replace(str(place), "HERE"))
    assert found[0] == found[1]
    assert "4 runs: 4 finished" in found[0]
    assert "100.5" in found[0]
    assert "each of 2 learners" in (folder / "runs" / member.name / "summary.json").read_text()
