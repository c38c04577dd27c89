"""`seedbed list` of sets of runs on a cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode
from tests.support.kubectl_stand_in import StandIn

RUNS: dict[str, dict[str, Any]] = {
    "lr-a": {"state": "training", "frames": 40, "goal": 80, "score": 9.5, "seconds_left": 60.0},
    "lr-b": {"state": "training", "frames": 20, "goal": 80, "score": 3.0, "seconds_left": 90.0},
    "lr-c": {"state": "finished", "reason": "stop.env_frames: 80 of 80", "frames": 80, "goal": 80,
             "score": 12.25, "dollars": 0.5},
    "lr-d": {"state": "waiting", "reason": "learners: 2 of 2", "frames": 0, "goal": 80},
}  # fmt: skip


@pytest.fixture
def cluster(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A set `lr` beside a release `pong`, in an empty folder."""
    made: StandIn = make()
    monkeypatch.setenv("KUBECONFIG", str(made.folder / "claim.json"))  # any file
    made.a_set("lr", RUNS, ["lr-b"], dollars="1.25", unixTime=f"{time.time():.3f}")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return made


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    assert main(["list", "--json", *words]) == 0
    return {row["run"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_set_is_one_row(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys)
    assert list(found) == ["default/pong", "default/lr"], "its runs are not listed beside it"
    row = found["default/lr"]
    assert row["state"] == "1 of 4 finished, 2 training, 1 waiting"
    assert row["states"] == {"finished": 1, "training": 2, "waiting": 1}
    assert (row["env_frames"], row["dollars"], row["evaluation_mean"]) == (140, 1.25, 12.25)
    assert row["done"] == (40 / 80 + 20 / 80 + 1) / 4
    assert row["seconds_left"] is None, "nothing has told yet how long the one that waits takes"
    assert list(rows(capsys, "-A")) == list(found)
    lost = {"lr-e": {"state": "failed"}, "lr-f": {"state": "waiting"}}
    cluster.a_set("more", {"lr-d": RUNS["lr-d"], **lost, "lr-a": RUNS["lr-a"]})
    more = rows(capsys)["default/more"]
    assert more["state"] == "0 of 4 finished, 1 training, 2 waiting, 1 failed"
    assert more["done"] == 0.5 / 4, "of all, also where a goal is not known"
    cluster.removes_set("more")
    assert any("--all-namespaces" in call for call in cluster.calls)
    assert main(["list"]) == 0
    assert "default/lr    1 of 4 finished, 2 training, 1 waiting" in capsys.readouterr().out


def test_the_time_to_go_counts_places(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    waits = {**RUNS, "lr-d": {**RUNS["lr-d"], "seconds_left": 90.0}}
    cluster.a_set("two", waits, dollars="1", unixTime=f"{time.time():.3f}")
    assert rows(capsys)["default/two"]["seconds_left"] == (60 + 90 + 90) / 2
    last = {"one-a": RUNS["lr-a"], "one-b": {**RUNS["lr-b"], "seconds_left": 300.0}}
    cluster.a_set("one", last)
    assert rows(capsys)["default/one"]["seconds_left"] == 300


def test_a_set_that_is_held_or_silent_says_so(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.writes("lr-set-state", paused="seedbed pause lr")
    assert rows(capsys)["default/lr"]["state"].startswith("paused: 1 of 4 finished")
    cluster.a_set("late", RUNS, unixTime=f"{time.time() - 240:.0f}")
    assert "SILENT" not in rows(capsys)["default/late"]["state"]
    cluster.a_set("dead", RUNS, unixTime=f"{time.time() - 360:.0f}")  # of 300 s
    assert rows(capsys)["default/dead"]["state"].startswith("SILENT: 1 of 4 finished")
    over = {run: {**entry, "state": "finished"} for run, entry in RUNS.items()}
    cluster.a_set("done", over, unixTime="1000.0", endedBy="budget.dollars: $2 of $2")
    capsys.readouterr()
    assert main(["list"]) == 0
    assert "default/done: " not in capsys.readouterr().err, "nothing of it is to go on"
    assert rows(capsys)["default/done"]["state"] == "4 of 4 finished"
    cluster.a_set("new", {})
    assert rows(capsys)["default/new"]["state"] == "begun"


def test_the_name_of_a_set_lists_its_runs(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["lr"], ["lr", "-n", "default"]):
        found = rows(capsys, *words)
        assert list(found) == list(RUNS)
        assert (found["lr-a"]["done"], found["lr-a"]["seconds_left"]) == (0.5, 60)
        assert found["lr-d"]["reason"] == "learners: 2 of 2"
        assert found["lr-c"]["dollars"] == 0.5
    assert list(rows(capsys, "pong")) == ["default/pong"]
    # A folder of that name is the folder, and asks no cluster.
    run = Path("lr/x")
    run.mkdir(parents=True)
    (run / "progress.csv").touch()
    before = len(cluster.calls)
    assert list(rows(capsys, "lr")) == ["x"]
    assert len(cluster.calls) == before


def test_a_name_of_nothing_is_told_as_both(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "pung"]) == ExitCode.RUN_DIRECTORY
    said = capsys.readouterr().err
    assert "no folder pung here" in said
    assert "there: pong, the set lr" in said
    assert main(["list", "pung", "-n", "default"]) == ExitCode.DEPLOY


def test_a_cluster_with_nothing_is_an_empty_table_and_a_sentence(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.holds_nothing()
    for words, where in (
        ([], "namespace default"),
        (["-n", "default"], "namespace default"),
        (["-A"], "any namespace"),
    ):
        assert main(["list", *words]) == 0
        told = capsys.readouterr()
        assert told.out.split()[:2] == ["release", "state"]
        assert f"no releases in {where}, and no folder runs/ here" in told.err
    Path("runs").mkdir()
    assert rows(capsys) == {}
    assert main(["list"]) == 0
    assert "and no run below runs/ here" in capsys.readouterr().err
    # What was named here, and what is nowhere, are errors.
    assert main(["list", "runs"]) == ExitCode.RUN_DIRECTORY
    assert main(["list", "-n", "lap"]) == ExitCode.DEPLOY
    assert "there is no namespace lap: `kubectl get namespaces`" in capsys.readouterr().err
    program = cluster.folder / "bin" / "kubectl"
    program.write_text("#!/bin/sh\necho 'Error from server (Forbidden): forbidden' >&2\nexit 1\n")
    assert main(["list", "-n", "lap"]) == ExitCode.DEPLOY
    assert "the account may not do this in the namespace" in capsys.readouterr().err
    assert main(["list"]) == ExitCode.RUN_DIRECTORY
    assert "the account may not do this in the namespace" in capsys.readouterr().err


def test_volumes_that_a_set_has_left_are_told_with_what_removes_them(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.claims("old", "old-a", "old-b")
    cluster.claims("lr", "lr-c")  # of a set that is there
    assert main(["list"]) == 0
    said = capsys.readouterr().err
    assert "default/old is gone, and 2 volumes of its runs are left" in said
    assert "kubectl -n default delete pvc -l seedbed.dev/set=old" in said
    assert "default/lr is gone" not in said
    # What the controller has kept of it stays, too.
    cluster.claim_of_set("old")
    cluster.claim_of_set("lr")
    cluster.claim_of_set("older")
    assert main(["list"]) == 0
    said = capsys.readouterr().err
    assert "2 volumes of its runs and that of its rows (old-set) are left" in said
    assert "-l seedbed.dev/set=old && kubectl -n default delete pvc old-set" in said
    assert "until they are deleted: kubectl -n default delete pvc older-set" in said
    assert "lr-set" not in said
    # With one of its runs still there, its volume is not among them.
    cluster.a_set("gone", {}, ["gone-a"])
    cluster.removes_set("gone")
    cluster.claims("gone", "gone-a", "gone-b", "gone-c")
    assert main(["list"]) == 0
    captured = capsys.readouterr()
    assert "delete pvc runs-gone-b-learner-0 runs-gone-c-learner-0" in captured.err
    assert "default/gone-a" in captured.out, "a release of its own by now"
    cluster.rests("gone-a")  # the state of a run holds no volume
    assert main(["list"]) == 0
    assert "delete pvc -l seedbed.dev/set=gone" in capsys.readouterr().err
    # Without the right to read them the rest is listed.
    (cluster.folder / "claims.json").unlink()
    assert main(["list"]) == 0
    assert "default/lr" in capsys.readouterr().out
