"""`seedbed status` and `logs` of sets of runs on a cluster."""

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
    "lr-a": {"state": "training", "frames": 40, "goal": 80, "score": 9.5, "dollars": 0.5},
    "lr-b": {"state": "finished", "reason": "stop.env_frames: 80 of 80", "frames": 80, "goal": 80},
    "lr-c": {"state": "waiting", "reason": "learners: 1 of 1", "frames": 0, "goal": 80},
}
GIVEN = {
    "sweep.yaml": "experiment: experiment.yaml\nbudget: {dollars: 0.02, hours: 0}\n",
    "limits.json": json.dumps({"learners": 1, "actors": 0, "gpus": 0}),
}


@pytest.fixture
def cluster(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A set `lr` beside a release `pong`, in an empty folder."""
    made: StandIn = make()
    monkeypatch.setenv("KUBECONFIG", str(made.folder / "claim.json"))  # any file
    now = f"{time.time():.3f}"
    state = {"dollars": "1.25", "dollarsPerHour": "0.5", "unixTime": now, "holds": "learners: 1"}
    made.a_set("lr", RUNS, ["lr-a"], GIVEN, **state)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return made


def status(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["status", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_page_of_a_set_has_its_bound_and_every_run(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "lr"]) == 0
    said = capsys.readouterr().out
    (row,) = (line.split() for line in said.splitlines() if line.startswith("lr-c"))
    assert row[1:3] == ["waiting", "0"]
    assert row[-4:] == ["learners:", "1", "of", "1"]
    assert "3 runs: 1 training, 1 finished, 1 waiting; 120 frames; $1.25; $0.50 an hour" in said
    assert "bound: $0.0200; at once: 1 learner\n" in said
    assert "nothing else starts: learners: 1" in said
    assert "silent" not in said
    assert "lost:" not in said
    found = status(capsys, "lr")
    assert found["budget"] == {"dollars": 0.02}
    assert found["limits"] == {"learners": 1}
    assert [run["run"] for run in found["runs"]] == list(RUNS)
    cluster.writes("lr-set-state", endedBy="budget.dollars: $0.02 of $0.02", unixTime="1.0")
    assert main(["status", "lr", "-n", "default"]) == 0
    said = capsys.readouterr().out
    assert "ended by: budget.dollars: $0.02 of $0.02" in said
    assert "its controller is silent: `seedbed logs lr -n default`" in said
    cluster.a_set("done", {"lr-b": RUNS["lr-b"]}, unixTime="1.0")
    assert main(["status", "done"]) == 0
    assert "its controller" not in capsys.readouterr().out, "which has nothing more to save"
    cluster.a_set("new", {})
    assert main(["status", "new"]) == 0
    assert "its controller has not begun" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reason", "message", "told", "advice"),
    [
        (
            "ImagePullBackOff", "not found", "does not start: ImagePullBackOff of r/seedbed-cost:1",
            "push the image (--registry R)",
        ),
        (
            "", "exceeded quota: pods", "ReplicaSet lr-set-7f cannot make its pods: exceeded quota",
            "or ask for a larger ResourceQuota",
        ),
        (
            "ContainerCreating", "", "lr-set-7f-abc is ContainerCreating",
            "`kubectl -n default describe deployment,pod -l app.kubernetes.io/name=seedbed-set",
        ),
    ],
)  # fmt: skip
def test_a_controller_that_never_came_is_told_with_what_to_do(
    cluster: StandIn, capsys: pytest.CaptureFixture[str],
    reason: str, message: str, told: str, advice: str,
) -> None:  # fmt: skip
    cluster.removes_set("lr")
    cluster.a_set("lr", {}, given=GIVEN)
    cluster.controller_cannot_start("lr", reason, message)
    for words in (["status", "lr"], ["list"], ["list", "lr"]):
        assert main(words) == 0
        said = "".join(capsys.readouterr())
        (line,) = (one for one in said.splitlines() if "its controller has not come: " in one)
        assert told in line
        assert advice in line
    assert told in status(capsys, "lr")["controller"]
    cluster.writes("lr-set-state", unixTime="1.0")
    assert main(["status", "lr"]) == 0
    assert "its controller is away: " in capsys.readouterr().out


def test_a_held_set_is_told_by_list_in_the_words_of_status(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "budget.dollars: lr-c may take $0.01, and of $0.02 $0.015 is spent and $0 reserved"
    cluster.writes("lr-set-state", holds=why)
    for words in (["status", "lr"], ["list"], ["list", "lr"]):
        assert main(words) == 0
        assert f"nothing else starts: {why}" in "".join(capsys.readouterr())
    cluster.writes("lr-set-state", endedBy=why)
    assert main(["status", "lr"]) == 0
    assert capsys.readouterr().out.count(why) == 1


def test_a_set_of_which_each_run_is_refused_has_the_reason(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    waits = {"state": "waiting", "reason": "exceeded quota: rl"}
    held = {"state": "paused", "reason": "for a talk"}
    cluster.a_set("full", {"a": waits, "b": waits, "c": held, "d": RUNS["lr-b"]})
    cluster.a_set("part", {"a": waits, "b": {"state": "starting"}})
    for words in (["status", "full"], ["list", "full"], ["list"]):
        assert main(words) == 0
        said = "".join(capsys.readouterr())
        assert "nothing else starts: a: exceeded quota: rl" in said
        assert "part: nothing else" not in said
    assert main(["status", "part"]) == 0
    assert "nothing else starts" not in capsys.readouterr().out


def test_failures_and_preemptions_are_told_apart(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = {"lr-a": {"failures": 1, "preemptions": 7}, "lr-b": {"preemptions": 2}}
    cluster.a_set("lost", {name: {**row, **lost.get(name, {})} for name, row in RUNS.items()})
    assert main(["status", "lost"]) == 0
    said = capsys.readouterr().out
    (row,) = (line.split() for line in said.splitlines() if line.startswith("lr-a"))
    assert row[-2:] == ["1", "7"]
    assert "lost: 1 failure of their own, and 9 pods that a drain" in said
    found = status(capsys, "lost")
    assert (found["failures"], found["preemptions"]) == (1, 9)
    assert [run["preemptions"] for run in found["runs"]] == [7, 2, 0]


def test_a_pause_shows_before_the_controller_has_seen_it(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pause", "lr", "lr-c", "lr-b"]) == 0
    cluster.writes("lr-set-state", **{"paused.lr-b": "too late"})
    cluster.writes("lr-a-state", paused="stop.idle_s: 1,800 of 1,800")
    found = {run["run"]: (run["state"], run["reason"]) for run in status(capsys, "lr")["runs"]}
    assert found == {
        "lr-a": ("paused", "stop.idle_s: 1,800 of 1,800"),
        "lr-b": ("finished", "stop.env_frames: 80 of 80"),
        "lr-c": ("paused", "seedbed pause lr lr-c"),
    }


def test_a_name_of_no_set_is_told(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "pong"]) == ExitCode.USAGE
    assert "is a release and no set: `seedbed list -n default`" in capsys.readouterr().err
    assert main(["status", "lr-a"]) == ExitCode.USAGE
    assert "is a run of the set lr, which has the rows of all" in capsys.readouterr().err
    assert main(["status", "pung"]) == ExitCode.RUN_DIRECTORY
    said = capsys.readouterr().err
    assert "no folder pung here" in said
    assert "there: pong, the set lr" in said
    Path("lr").mkdir()
    assert main(["status", "lr"]) == ExitCode.USAGE
    assert "lr is a folder here and a set in namespace default" in capsys.readouterr().err


def test_without_a_cluster_a_word_is_told_as_before(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "nowhere")
    assert main(["status", "lr"]) == ExitCode.USAGE
    assert "neither a directory that exists nor an address" in capsys.readouterr().err
    assert cluster.calls == []


def test_logs_are_the_controllers_or_a_runs(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.pods(["lr-set-abc"])
    assert main(["logs", "lr", "--tail", "5"]) == 0
    call = cluster.calls[-1]
    for word in (" logs ", "name=seedbed-set", "instance=lr,", "component=controller", "--tail=5"):
        assert word in call
    assert main(["logs", "lr", "lr-a", "--role", "actor"]) == 0
    assert (
        "instance=lr-a,app.kubernetes.io/name=seedbed,app.kubernetes.io/component=actor"
        in (cluster.calls[-1])
    )
    assert main(["logs", "lr-a"]) == 0
    assert (
        "instance=lr-a,app.kubernetes.io/name=seedbed,app.kubernetes.io/component=learner"
        in (cluster.calls[-1])
    )
    capsys.readouterr()
    assert main(["logs", "lr", "lr-c"]) == ExitCode.DEPLOY
    assert "it is waiting: learners: 1 of 1; `seedbed fetch lr DIR" in capsys.readouterr().err
    assert main(["logs", "lr", "lr-z"]) == ExitCode.DEPLOY
    assert main(["logs", "lr", "--role", "actor"]) == ExitCode.USAGE
    assert main(["logs", "pong", "lr-a"]) == ExitCode.USAGE
    cluster.pods([])
    capsys.readouterr()
    assert main(["logs", "lr"]) == ExitCode.DEPLOY
    assert "describe deployment lr-set" in capsys.readouterr().err
