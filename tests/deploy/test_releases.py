"""`seedbed list`, `logs` and `stop` of releases."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.deploy.releases import find_release
from seedbed.runtime.exit_codes import ExitCode
from tests.support.chart import NO_METER
from tests.support.kubectl_stand_in import StandIn

PROGRESS = {
    "run": "pong", "state": "training", "env_frames": 40, "goal": 80, "done": 0.5,
    "mean_return": 18.25, "evaluation_mean": 19.5, "seconds": 60.0, "seconds_left": 61.0,
}  # fmt: skip


@pytest.fixture
def make(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As the other, in an empty folder and with a cluster in the configuration."""

    def made_of(**values: Any) -> StandIn:
        made: StandIn = make(**values)
        monkeypatch.setenv("KUBECONFIG", str(made.folder / "claim.json"))  # any file
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        return made

    return made_of


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["list", "--json", *words]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_a_release_is_listed_by_what_its_meter_keeps(
    make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"run": "pong", "dollars": "1.25", "progress": json.dumps(PROGRESS)}
    now = f"{time.time():.3f}"
    cluster = make()
    cluster.state(**kept, unixTime=now)
    (row,) = rows(capsys)
    names = PROGRESS.keys() - {"run"}
    assert {name: row[name] for name in names} == {name: PROGRESS[name] for name in names}
    assert (row["run"], row["dollars"]) == ("default/pong", 1.25)
    assert main(["list"]) == 0
    assert "default/pong  training      40  50 %    18.2" in capsys.readouterr().out
    # At zero, after days: the bill and the score stay, and there is no time to go.
    for key in ("finished", "paused"):
        cluster.state(**kept, **{key: "stop.env_frames: 80 of 80"}, unixTime="1000.0")
        (row,) = rows(capsys)
        assert (row["state"], row["dollars"], row["seconds_left"]) == (key, 1.25, None)
        assert row["evaluation_mean"] == 19.5
    cluster.state(**kept, unixTime="1000.0")
    assert rows(capsys)[0]["state"] == "SILENT"
    # Another run in the release has no progress yet.
    cluster.state(**{**kept, "run": "second"}, unixTime=now)
    assert rows(capsys)[0]["env_frames"] is None
    cluster.state()
    assert rows(capsys)[0]["state"] == "begun"


def test_a_release_without_a_meter_is_listed_by_its_learner(
    make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make(**NO_METER)
    assert rows(capsys)[0]["state"] == "begun"
    counters = {"env_frames": 7, "updates": 1, "seconds": 3, "dollars": 2}
    status = {
        "state": "training", "learners": {}, "counters": counters,
        "stop": {"env_frames": 0}, "stop_reason": None, "eta": None, "evaluation": None,
        "numbers": {"mean_return": 5.0},
    }  # fmt: skip
    (cluster.volume / "pong").mkdir()
    (cluster.volume / "pong/status.json").write_text(json.dumps(status))
    (row,) = rows(capsys)
    assert (row["state"], row["env_frames"], row["mean_return"]) == ("training", 7, 5.0)


def test_a_cluster_that_does_not_answer_hides_no_run(
    make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make()
    run = Path("runs/a")
    run.mkdir(parents=True)
    (run / "progress.csv").touch()
    assert [row["run"] for row in rows(capsys)] == ["a", "default/pong"]
    (cluster.folder / "objects.json").unlink()
    assert main(["list"]) == 0
    said = capsys.readouterr()
    assert "no release is listed: kubectl" in said.err
    assert "begun" in said.out
    assert main(["list", "-n", "default"]) == ExitCode.DEPLOY
    before = len(cluster.calls)
    assert [row["run"] for row in rows(capsys, "runs")] == ["a"]
    assert len(cluster.calls) == before, "a folder alone asks no cluster"


def test_stop_pauses_a_release(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = make()
    assert main(["stop", "pong"]) == 0
    assert cluster.json("patch") == {"data": {"paused": "seedbed pause"}}
    said = capsys.readouterr().err
    assert "to resume: seedbed resume pong -n default" in said
    cluster.state(finished="stop.env_frames: 80 of 80")
    before = len([call for call in cluster.calls if "patch" in call])
    assert main(["stop", "pong"]) == 0
    assert "finished already: stop.env_frames" in capsys.readouterr().err
    assert len([call for call in cluster.calls if "patch" in call]) == before


def test_a_release_whose_stop_was_raised_is_not_finished(
    make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The meter reads the upgrade seconds later, and only then the state says it."""
    cluster = make()
    kept = {"run": "pong", "progress": json.dumps({**PROGRESS, "state": "finished"})}
    end = {"finished": "stop.env_frames: 80 of 80", "resumeReplicas": '{"actor":3,"learner":1}'}
    now = f"{time.time():.3f}"
    cluster.state(**kept, **end, goal="another", unixTime=now)
    assert rows(capsys)[0]["state"] == "begun"
    release = find_release("pong", "default")
    assert release.hold is None
    for item in cluster.objects:
        if item["kind"] == "StatefulSet":
            item["spec"]["replicas"] = 0
    cluster.state(**kept, **end, goal="another", unixTime=now)
    assert find_release("pong", "default").resuming()["learner"] == 1
    assert main(["stop", "pong"]) == 0
    assert cluster.json("patch") == {"data": {"paused": "seedbed pause"}}
    (meter,) = release.workloads("cost")
    (goal,) = (x for x in meter["spec"]["template"]["spec"]["containers"][0]["args"]
               if x.startswith("--goal="))  # fmt: skip
    cluster.state(**kept, **end, goal=goal.removeprefix("--goal="), unixTime=now)
    held = find_release("pong", "default")
    assert held.hold == ("finished", end["finished"])
    assert held.resuming()["learner"] == 0


def test_a_pause_by_value_ends_with_the_value(
    make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make()
    cluster.state(paused="value", unixTime=f"{time.time():.3f}")
    assert find_release("pong", "default").hold is None
    (meter,) = find_release("pong", "default").workloads("cost")
    cluster.objects[cluster.objects.index(meter)]["spec"]["template"]["spec"]["containers"][0][
        "args"
    ].append("--paused")
    cluster.state(unixTime=f"{time.time():.3f}")
    assert find_release("pong", "default").hold == ("paused", "value"), "before the meter reads it"
    assert rows(capsys)[0]["state"] == "paused"


def test_stop_without_a_meter_says_what_pauses(
    make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make(**NO_METER)
    assert main(["stop", "pong"]) == ExitCode.DEPLOY
    assert "--set paused=true" in capsys.readouterr().err


def test_stop_promises_nothing_of_a_meter_that_is_not_there(
    make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make()
    (meter,) = (x for x in cluster.objects
                if (x["kind"], x["metadata"]["name"]) == ("Deployment", "pong-cost"))  # fmt: skip
    meter["status"] = {}
    cluster.state()
    assert main(["stop", "pong"]) == 0
    said = capsys.readouterr().err
    assert "its cost meter is not ready: the last resort takes the pods to zero" in said
    cluster.objects.remove(meter)
    cluster.state(meterLeftAt="2026-01-01T00:00:00+00:00")
    assert main(["stop", "pong"]) == ExitCode.DEPLOY
    assert "no cost meter (it has left after the end)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["stop", "logs"])
def test_a_name_of_both_is_refused(
    make: Any, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make().pods(["pong-learner-0"])
    Path("pong").mkdir()
    assert main([command, "pong"]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "the folder ./pong, or the release pong -n default" in said
    assert main([command, "pong", "-n", "default"]) == 0
    assert main([command, "./pong"]) == ExitCode.RUN_DIRECTORY


def test_a_name_of_neither_is_told_as_both(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make()
    assert main(["stop", "pung"]) == ExitCode.RUN_DIRECTORY
    said = capsys.readouterr().err
    assert "no folder pung here" in said
    assert "no release pung in namespace default; there: pong" in said


def test_logs_are_those_of_a_role(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = make()
    cluster.pods(["pong-learner-0"])
    assert main(["logs", "pong", "--role", "actor", "--tail", "5", "-f"]) == 0
    call = cluster.calls[-1]
    for word in (" logs ", "component=actor", "--tail=5", "--follow=true", "--prefix"):
        assert word in call
    cluster.pods([])
    cluster.state(paused="maintenance")
    assert main(["logs", "pong"]) == ExitCode.DEPLOY
    said = capsys.readouterr().err
    assert "it is paused: maintenance; `seedbed fetch pong DIR -n default`" in said
