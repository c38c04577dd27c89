"""`seedbed pause` and `resume` of releases and of sets of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode
from tests.support.chart import NO_METER
from tests.support.kubectl_stand_in import StandIn

RUNS = {
    "lr-a": {"state": "training", "frames": 40, "goal": 80, "score": 9.5, "dollars": 0.5},
    "lr-b": {"state": "training", "frames": 20, "goal": 80, "score": 3.0, "dollars": 0.25},
    "lr-c": {"state": "finished", "reason": "stop.env_frames: 80 of 80", "frames": 80, "goal": 80},
    "lr-d": {"state": "waiting", "reason": "learners: 2 of 2", "frames": 0, "goal": 80},
    "lr-e": {"state": "failed", "reason": "exit code 11", "frames": 3, "goal": 80},
}
AWAKE = ("lr-a", "lr-b", "lr-c")
NOTHING: dict[str, str] = {}


@pytest.fixture
def cluster(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A set `lr` beside a release `pong`."""
    made: StandIn = make()
    made.a_set("lr", RUNS, AWAKE)
    made.writes("lr-c-state", finished="stop.env_frames: 80 of 80")
    monkeypatch.setenv("KUBECONFIG", str(made.folder / "claim.json"))  # any file
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return made


def paused(cluster: StandIn) -> dict[str, str]:
    """What the state of the set and of each of its awake runs says of a pause."""
    found = {key: x for key, x in cluster.data("lr-set-state").items() if key[:6] == "paused"}
    states = {run: cluster.data(f"{run}-state").get("paused") for run in AWAKE}
    return found | {run: reason for run, reason in states.items() if reason}


def patches(cluster: StandIn) -> int:
    return len([call for call in cluster.calls if " patch " in call])


def test_a_release_is_paused_and_resumed(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pause", "pong"]) == 0
    assert cluster.data("pong-state")["paused"] == "seedbed pause"
    assert "to resume: seedbed resume pong -n default" in capsys.readouterr().err
    assert main(["resume", "pong"]) == 0
    assert "paused" not in cluster.data("pong-state")
    before = patches(cluster)
    assert main(["resume", "pong"]) == 0
    assert "neither paused nor finished" in capsys.readouterr().err
    assert patches(cluster) == before
    # What the meter has written ends by the same command.
    cluster.writes("pong-state", paused="stop.idle_s: 1,800 of 1,800")
    assert main(["resume", "pong"]) == 0
    assert "paused" not in cluster.data("pong-state")


def test_a_finished_release_is_not_resumed_but_continued(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.writes("pong-state", finished="stop.env_frames: 80 of 80")
    assert main(["resume", "pong"]) == ExitCode.DEPLOY
    said = capsys.readouterr().err
    assert "seedbed deploy EXPERIMENT.yaml --release pong -n default --set" in said
    assert "--set experiment.stop.env_frames=NUMBER" in said
    assert patches(cluster) == 0


def test_a_pause_by_value_is_ended_by_an_upgrade(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make(paused=True)
    cluster.state(unixTime="1.0")  # the meter has not read it yet
    assert main(["resume", "pong", "-n", "default"]) == ExitCode.DEPLOY
    assert "--reuse-values --set paused=false" in capsys.readouterr().err
    assert patches(cluster) == 0


def test_a_release_without_a_meter_is_resumed_by_an_upgrade(
    make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make(**NO_METER)
    assert main(["resume", "pong", "-n", "default"]) == ExitCode.DEPLOY
    assert "--set paused=false" in capsys.readouterr().err


def test_a_run_is_paused_in_its_set_and_by_its_own_meter(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pause", "lr", "lr-a"]) == 0
    both = {"paused.lr-a": "seedbed pause lr lr-a", "lr-a": "seedbed pause lr lr-a"}
    assert paused(cluster) == both
    assert "to resume: seedbed resume lr lr-a -n default" in capsys.readouterr().err
    assert main(["pause", "lr", "lr-a"]) == 0
    assert "paused already" in capsys.readouterr().err
    assert main(["resume", "lr", "lr-a"]) == 0
    assert paused(cluster) == NOTHING
    # As a release, and by the other word for it.
    assert main(["stop", "lr-a"]) == 0
    assert paused(cluster) == both
    assert main(["resume", "lr-a"]) == 0
    assert paused(cluster) == NOTHING


def test_a_run_without_a_pod_is_told_as_what_it_is(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pause", "lr", "lr-c", "lr-e"]) == 0
    said = capsys.readouterr().err
    assert "lr-c is finished (stop.env_frames: 80 of 80) already" in said
    assert "lr-e is failed (exit code 11) already" in said
    assert patches(cluster) == 0
    assert main(["resume", "lr", "lr-c", "lr-d", "lr-e"]) == 0
    said = capsys.readouterr().err
    assert "a higher stop condition in the set's file continues it" in said
    assert "lr-d is not paused: it is waiting (learners: 2 of 2)" in said
    assert "--retry failed` starts it again" in said
    assert patches(cluster) == 0
    # One that waits can be kept from starting.
    assert main(["pause", "lr", "lr-d"]) == 0
    assert paused(cluster) == {"paused.lr-d": "seedbed pause lr lr-d"}
    assert "it is not started before it is resumed" in capsys.readouterr().err
    assert main(["resume", "lr", "lr-d"]) == 0
    assert paused(cluster) == NOTHING


def test_a_run_that_is_not_there_pauses_no_other(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pause", "lr", "lr-a", "lr-z"]) == ExitCode.DEPLOY
    assert "has no run lr-z: `seedbed list lr -n default` names them" in capsys.readouterr().err
    assert patches(cluster) == 0
    assert main(["pause", "pong", "lr-a"]) == ExitCode.USAGE


def test_a_set_resumes_as_it_was_paused(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """The meter's pauses, and those of single runs before and after, outlive it."""
    cluster.writes("lr-b-state", paused="stop.idle_s: 1,800 of 1,800")
    assert main(["pause", "lr", "lr-a"]) == 0
    before = paused(cluster)
    assert main(["pause", "lr"]) == 0
    assert paused(cluster) == before | {"paused": "seedbed pause lr"}
    said = capsys.readouterr().err
    assert "lr pauses: no other run starts" in said
    assert main(["resume", "lr"]) == 0
    assert paused(cluster) == before
    said = capsys.readouterr().err
    assert "lr-a stays paused: seedbed pause lr lr-a" in said
    assert "lr-b stays paused: stop.idle_s" in said
    # The run's own pause begins, and ends, while the set is paused.
    assert main(["resume", "lr", "lr-a"]) == 0
    assert main(["pause", "lr"]) == 0
    whole = paused(cluster)
    assert whole["lr-a"] == "seedbed pause lr"
    assert main(["pause", "lr", "lr-a"]) == 0
    assert main(["resume", "lr"]) == 0
    assert paused(cluster) == before, "lr-a is a person's still"
    assert main(["pause", "lr"]) == 0
    capsys.readouterr()
    assert main(["resume", "lr", "lr-a"]) == 0
    assert "stays paused with the set" in capsys.readouterr().err
    assert paused(cluster) == whole
    assert main(["resume", "lr"]) == 0
    assert paused(cluster) == {"lr-b": "stop.idle_s: 1,800 of 1,800"}


def test_the_controller_starts_nothing_whose_pause_is_still_there(cluster: StandIn) -> None:
    """It would keep that as a person's; what was cut short ends by the same line."""
    for words in (["pause", "lr"], ["pause", "lr", "lr-d"], ["pause", "lr", "lr-a"],
                  ["resume", "lr"], ["resume", "lr", "lr-a"]):  # fmt: skip
        before = patches(cluster)
        assert main(words) == 0
        made = [call for call in cluster.calls if " patch " in call][before:]
        first = made[0] if words[0] == "pause" else made[-1]
        assert " lr-set-state " in first
    assert main(["resume", "lr", "lr-d"]) == 0
    cluster.writes("lr-a-state", paused="seedbed pause lr")
    assert main(["resume", "lr"]) == 0
    assert paused(cluster) == NOTHING
    cluster.writes("lr-a-state", paused="seedbed pause lr lr-a")
    assert main(["resume", "lr", "lr-a"]) == 0
    assert paused(cluster) == NOTHING


def test_a_set_resumes_with_runs_that_have_left_meanwhile(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pause", "lr"]) == 0
    cluster.rests("lr-a", "lr-b")
    # The controller has seen the pause of the run before that of the set.
    cluster.writes("lr-set-state", **{"paused.lr-b": "seedbed pause lr"})
    assert main(["resume", "lr"]) == 0
    assert paused(cluster) == NOTHING
    assert "lr resumes, with lr-a, lr-b" in capsys.readouterr().err
    assert main(["pause", "lr"]) == 0
    bound = "budget.dollars: $0.03 of $0.02"
    cluster.writes("lr-set-state", endedBy=bound, holds="paused: seedbed pause lr")
    capsys.readouterr()
    assert main(["resume", "lr"]) == 0
    said = capsys.readouterr().err
    assert f"lr: ended by: {bound}" in said, "nothing goes on all the same"
    assert "paused: seedbed" not in said
    # A run that rests is paused before it starts again, by its name alone, too.
    assert main(["pause", "lr-a"]) == 0
    assert "it is not started before it is resumed" in capsys.readouterr().err
    assert paused(cluster) == {"paused.lr-a": "seedbed pause lr lr-a"}
    assert main(["resume", "lr", "lr-a"]) == 0
    assert paused(cluster) == NOTHING


def test_what_the_controller_has_ended_is_no_pause(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.writes("lr-a-state", paused="set: it is one more than learners: 1")
    assert main(["resume", "lr", "lr-a", "--force"]) == 0
    assert "lr-a is not paused: it is training" in capsys.readouterr().err
    assert patches(cluster) == 0
    # One whose meter has ended it for good is over.
    cluster.a_set("bad", {"bad-a": RUNS["lr-e"]}, ["bad-a"])
    cluster.writes("bad-a-state", paused="learner: exit code 11")
    cluster.rests("bad-a")
    assert main(["resume", "bad", "bad-a"]) == 0
    assert "--retry failed` starts it again" in capsys.readouterr().err
    assert patches(cluster) == 0


def test_another_persons_pause_ends_by_force_alone(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.writes("lr-set-state", **{"paused": "maintenance", "paused.lr-a": "mine"})
    cluster.writes("lr-a-state", paused="mine")
    cluster.writes("lr-b-state", paused="stop.idle_s: 1,800 of 1,800")
    there = paused(cluster)
    assert main(["resume", "lr"]) == 0
    assert "with the reason 'maintenance'" in capsys.readouterr().err
    assert main(["resume", "lr", "lr-a", "lr-b"]) == 0
    said = capsys.readouterr().err
    assert "'mine'; to end it: seedbed resume lr lr-a -n default --force" in said
    assert paused(cluster) == there
    # Hers beside that of a meter: each ends by its own.
    assert main(["pause", "lr", "lr-b"]) == 0
    assert paused(cluster) == there | {"paused.lr-b": "seedbed pause lr lr-b"}
    assert main(["resume", "lr", "lr-b"]) == 0
    assert paused(cluster) == there
    assert main(["resume", "lr", "--force"]) == ExitCode.USAGE
    assert main(["resume", "lr", "lr-a", "lr-b", "--force"]) == 0
    assert paused(cluster) == {"paused": "maintenance"}


def test_a_meter_that_writes_in_between_keeps_its_pause(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seedbed.deploy import set_releases

    assert main(["pause", "lr", "lr-a"]) == 0
    find = set_releases.find

    def late(name: str, namespace: str) -> Any:
        found = find(name, namespace)
        cluster.writes("lr-a-state", paused="learner: exit code 21")
        return found

    monkeypatch.setattr("seedbed.cli.resume.find", late)
    assert main(["resume", "lr", "lr-a"]) == ExitCode.DEPLOY
    assert cluster.data("lr-a-state")["paused"] == "learner: exit code 21"


def test_a_set_that_is_over_is_told_as_that(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    over = {run: {**entry, "state": "finished"} for run, entry in RUNS.items()}
    cluster.a_set("done", over)
    assert main(["pause", "done"]) == 0
    assert "done is over already: 5 of 5 finished" in capsys.readouterr().err
    assert main(["resume", "done"]) == ExitCode.DEPLOY
    assert "seedbed deploy SWEEP.yaml -n default" in capsys.readouterr().err
    assert patches(cluster) == 0


def test_a_meter_that_is_not_there_is_told(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    items = cluster.json("objects")["items"]
    for item in items:
        if item["metadata"]["name"] == "lr-b-cost":
            item["status"] = {}
    (cluster.folder / "objects.json").write_text(json.dumps({"items": items}))
    assert main(["pause", "lr"]) == 0
    said = capsys.readouterr().err
    assert "lr-b: its cost meter is not ready" in said
    assert "lr-a: its cost meter" not in said


def test_two_of_one_name_are_refused(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.a_set("pong", RUNS)
    assert main(["pause", "pong"]) == ExitCode.USAGE
    assert "pong is a set and a release in namespace default" in capsys.readouterr().err
    Path("lr").mkdir()
    assert main(["pause", "lr"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "lr is a folder here and a set in namespace default" in said
    assert main(["pause", "./lr"]) == ExitCode.RUN_DIRECTORY
    assert patches(cluster) == 0
    assert main(["pause", "lr", "-n", "default"]) == 0
    assert "paused" in paused(cluster)


def test_a_name_of_neither_names_what_is_there(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", "pung"]) == ExitCode.DEPLOY
    assert "there: pong, the set lr" in capsys.readouterr().err
