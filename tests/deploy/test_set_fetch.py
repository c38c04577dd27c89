"""`seedbed fetch` and `compare` of sets of runs on a cluster.

What would run in a pod runs for real, on folders of this machine.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli.main import main
from seedbed.config.load import dump_experiment
from seedbed.runs.evaluations import append_evaluation
from seedbed.runtime.exit_codes import ExitCode
from seedbed.sets.folder import Member, read_members
from tests.support.chart import CHART, render
from tests.support.kubectl_stand_in import StandIn

LR = "learner.optimizer.learning_rate"
STOP = 1000
SWEEP = ("sweep", "cartpole-vtrace", "--set", f"{LR}=1e-3,1e-2", "--set", f"stop.env_frames={STOP}",
         "--set", "stop.mean_return=null", "--seeds", "3", "--print")  # fmt: skip


def a_set(folder: Path) -> list[Member]:
    assert main([*SWEEP, "--out", str(folder)]) == 0
    return read_members(folder)


def rows(member: Member, score: float, run: Path | None = None) -> Path:
    """Leave the rows of a finished run, as the controller has them, or as the run has."""
    run = run or member.run
    run.mkdir(parents=True, exist_ok=True)
    (run / "experiment.yaml").write_text(dump_experiment(member.experiment))
    (run / "evaluations.csv").unlink(missing_ok=True)
    row = {"env_frames": STOP, "updates": 9, "episodes": 20, "policy": "sample", "mean": score,
           "checkpoint": "checkpoint-9", "training_seconds": 60.0,
           "human_normalised": None}  # fmt: skip
    append_evaluation(run, row)
    counters = {"env_frames": STOP, "updates": 9, "seconds": 60.0, "dollars": 0.01}
    (run / "status.json").write_text(json.dumps({"counters": counters}))
    (run / "progress.csv").write_text(f"env_frames\n{STOP}\n")
    ended = {**counters, "stop_reason": f"stop.env_frames: {STOP} of {STOP}",
             "evaluation": {"updates": 9}}  # fmt: skip
    (run / "summary.json").write_text(json.dumps(ended))
    return run


def volume_of(cluster: StandIn, member: Member, started: float = 1.0) -> Path:
    """Leave the whole run on its volume: rows, and what the controller has not."""
    run = rows(member, 5.0, cluster.volume / member.name)
    owner = f"default/{member.name}/{member.name}"
    (run / "owner.json").write_text(json.dumps({"run": owner, "id": owner}) + "\n")
    (run / "history.json").write_text(json.dumps({"starts": [{"time": started}]}))
    (run / "seedbed.lock").touch()
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints/best.safetensors").write_text(member.name * 1000)
    return run


def kept(members: list[Member]) -> dict[str, dict[str, Any]]:
    return {one.name: {"state": "finished", "frames": STOP, "goal": STOP} for one in members}


def found(folder: Path) -> dict[str, bytes]:
    return {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()}


@pytest.fixture
def cluster(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A set `lr` of six runs, whose controller has the rows of all and runs."""
    made: StandIn = make()
    monkeypatch.setenv("KUBECONFIG", str(made.folder / "claim.json"))  # any file
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    members = a_set(made.set_volume("lr"))
    for at, member in enumerate(members):
        rows(member, at)
    (made.set_volume("lr") / "set/lock").write_text("process 6 on lr-set-abc\n")
    made.a_set("lr", kept(members))
    made.runs_controller("lr")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return made


def members_of(cluster: StandIn) -> list[Member]:
    return read_members(cluster.set_volume("lr"))


def sent(capsys: pytest.CaptureFixture[str]) -> int:
    """Files that the last call has brought."""
    said = capsys.readouterr().err
    return sum(int(line.split("of which ")[1].split()[0]) for line in said.splitlines()
               if "of which" in line)  # fmt: skip


def test_the_folder_is_that_of_a_set(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    with_volume = members_of(cluster)[:2]
    for member in with_volume:
        volume_of(cluster, member)
    cluster.claims("lr", *(x.name for x in with_volume))
    home = Path("home")
    assert main(["fetch", "lr", "home"]) == 0
    files = found(home)
    there = found(cluster.set_volume("lr"))
    assert "set/lock" not in files, "it names a process of the cluster"
    for name, content in there.items():
        if name != "set/lock" and not any(f"runs/{x.name}/" in name for x in with_volume):
            assert files[name] == content
    for member in with_volume:
        for name, content in found(cluster.volume / member.name).items():
            assert files[f"runs/{member.name}/{name}"] == content
    said = capsys.readouterr().err
    assert "4 runs with what the controller has, without a volume to read" in said
    pod = cluster.json("created")
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == (
        f"runs-{with_volume[1].name}-learner-0"
    )
    assert not pod["spec"]["automountServiceAccountToken"]
    assert not any(" create " in call for call in cluster.calls if "lr-set" in call)
    # As a set of this machine.
    assert main(["status", "./home"]) == 0
    assert "6 runs: 6 finished" in capsys.readouterr().out
    assert main(["compare", "./home", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["groups"]) == 2
    assert main([*SWEEP, "--out", "home"]) == 0
    assert "6 runs" in " ".join(capsys.readouterr())
    # Again: nothing, and then what is new.
    assert main(["fetch", "lr", "home"]) == 0
    assert sent(capsys) == 0
    (cluster.volume / with_volume[0].name / "progress.csv").write_text("env_frames\n1\n2\n")
    assert main(["fetch", "lr", "home"]) == 0
    assert sent(capsys) == 1
    # A volume that has gone leaves what was fetched.
    cluster.removes_claims()
    assert main(["fetch", "lr", "home"]) == 0
    policy = home / "runs" / with_volume[0].name / "checkpoints/best.safetensors"
    assert policy.exists()


def test_several_learners_come_with_the_summary_that_the_controller_has(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    (member, *_) = members_of(cluster)
    volume_of(cluster, member)
    summary = (member.run / "summary.json").read_bytes()
    (member.run / "summary.json").unlink()  # it trains
    for rank in range(2):
        rows(member, 1.0, member.run / f"learner-{rank}")
    cluster.claims("lr", member.name, ranks=2)
    assert main(["fetch", "lr", "home"]) == 0
    here = Path("home/runs") / member.name
    whole = found(cluster.volume / member.name)
    assert found(here / "learner-0") == found(here / "learner-1") == whole
    assert not (here / "checkpoints").exists()
    assert not (here / "summary.json").exists()
    capsys.readouterr()
    (member.run / "summary.json").write_bytes(summary)
    assert main(["fetch", "lr", "home"]) == 0
    assert sent(capsys) == 1
    assert (here / "summary.json").read_bytes() == summary
    # One of the volumes is gone, and nothing is mixed.
    shutil.rmtree("home")
    cluster.removes_claims()
    cluster.claims("lr", member.name)
    assert main(["fetch", "lr", "home"]) == 0
    assert found(here / "learner-0") == whole
    assert (here / "learner-1/evaluations.csv").exists()
    assert not (here / "checkpoints").exists()


def test_a_run_that_is_awake_is_read_through_its_pod(cluster: StandIn) -> None:
    (member, *others) = members_of(cluster)
    volume_of(cluster, member).rename(cluster.volume / "of-the-pod")
    runs = kept(others) | {member.name: {"state": "training", "frames": 5, "goal": STOP}}
    cluster.removes_set("lr")
    cluster.a_set("lr", runs, [member.name])
    objects = cluster.folder / "objects.json"
    own = f"--run-dir={cluster.volume}/"
    objects.write_text(objects.read_text().replace(f"{own}{member.name}", f"{own}of-the-pod"))
    cluster.pods([f"{member.name}-learner-0"])
    cluster.runs_controller("lr")
    cluster.claims("lr", member.name)
    cluster.claims("lr", others[0].name, phase="Pending")  # it starts just now
    assert main(["fetch", "lr", "home", "-n", "default"]) == 0
    assert (Path("home/runs") / member.name / "checkpoints/best.safetensors").exists()
    assert not any(" create " in call for call in cluster.calls)


def test_the_charts_controller_is_read_by_its_own_volume(cluster: StandIn) -> None:
    """Without a pod of it, through one of its own."""
    (chart,) = CHART.parent.glob("seedbed-set")
    given = yaml.safe_load((chart / "ci/objects-values.yaml").read_text())
    objects = render(given, "lr", chart).all
    place = str(cluster.set_volume("lr"))
    text = json.dumps(objects).replace('"/set"', f'"{place}"').replace("=/set", f"={place}")
    items = json.loads(text)
    for item in items:
        item["metadata"]["namespace"] = "default"
    live = [x for x in items if x["kind"] in ("ConfigMap", "Deployment")]
    (cluster.folder / "sets.json").write_text(json.dumps({"items": live}))
    cluster.pods([])
    assert main(["fetch", "lr", "home"]) == 0
    assert len(read_members(Path("home"))) == 6
    pod = cluster.json("created")["spec"]
    assert pod["volumes"] == [{"name": "runs", "persistentVolumeClaim": {"claimName": "lr-set"}}]


def test_a_broken_connection_goes_on(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.breaks(10, 5_000, 20_000)
    assert main(["fetch", "lr", "home"]) == 0
    assert capsys.readouterr().err.count("again, for what is missing") == 3
    files = found(Path("home"))
    assert {name for name in found(cluster.set_volume("lr")) if name != "set/lock"} == (
        files.keys() - {"set/fetched.json"}
    )


def test_another_folder_is_refused(cluster: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    members = members_of(cluster)
    a_set(cluster.set_volume("other"))
    cluster.a_set("other", kept(members))
    cluster.runs_controller("other")
    assert main(["fetch", "lr", "home"]) == 0
    assert main(["fetch", "other", "home"]) == ExitCode.RUN_DIRECTORY
    assert "home has the set default/lr in it" in capsys.readouterr().err
    Path("else").mkdir()
    Path("else/notes").touch()
    assert main(["fetch", "lr", "else"]) == ExitCode.RUN_DIRECTORY
    assert "else has something else in it" in capsys.readouterr().err


def test_what_went_on_here_is_not_replaced(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    (member, *_) = members_of(cluster)
    volume_of(cluster, member)
    cluster.claims("lr", member.name)
    assert main(["fetch", "lr", "home"]) == 0
    run = Path("home/runs") / member.name
    (run / "history.json").write_text(json.dumps({"starts": [{"time": 1.0}, {"time": 2.0}]}))
    (run / "progress.csv").write_text("env_frames\n2000\n")
    assert main(["fetch", "lr", "home"]) == ExitCode.RUN_DIRECTORY
    assert "was started again here" in capsys.readouterr().err
    assert (run / "progress.csv").read_text() == "env_frames\n2000\n"
    # One whose history the controller has, among smaller files.
    shutil.rmtree(Path("home"))
    (member.run / "history.json").write_text(json.dumps({"starts": [{"time": 1.0}]}) + " " * 9000)
    cluster.removes_claims()
    assert main(["fetch", "lr", "home"]) == 0
    (run / "history.json").write_text(json.dumps({"starts": [{"time": 3.0}]}))
    (run / "progress.csv").write_text("env_frames\n3000\n")
    assert main(["fetch", "lr", "home"]) == ExitCode.RUN_DIRECTORY
    assert (run / "progress.csv").read_text() == "env_frames\n3000\n"


def test_runs_that_were_added_here_are_not_forgotten(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", "lr", "home"]) == 0
    more = [*SWEEP, "--out", "home"]
    more[more.index("3")] = "4"
    assert main(more) == 0
    assert main(["fetch", "lr", "home"]) == ExitCode.RUN_DIRECTORY
    assert "they were added here" in capsys.readouterr().err
    assert len(read_members(Path("home"))) == 8


def test_a_volume_that_cannot_be_read_leaves_the_rows_and_stops_no_other(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, *_ = members_of(cluster)
    for member in (first, second):
        volume_of(cluster, member)
    cluster.claims("lr", first.name, second.name)
    cluster.pods(["reader"], reader=f"runs-{second.name}-learner-0")
    cluster.runs_controller("lr")
    cluster.unbound()  # no pod of its own starts with the first one's
    assert main(["fetch", "lr", "home"]) == ExitCode.DEPLOY
    said = capsys.readouterr().err
    assert f"1 volume could not be read, of {first.name}" in said
    assert (Path("home/runs") / first.name / "progress.csv").exists()
    assert not (Path("home/runs") / first.name / "checkpoints").exists()
    assert (Path("home/runs") / second.name / "checkpoints/best.safetensors").exists()


def test_a_run_whose_volume_is_freed_has_its_best_checkpoint(
    cluster: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = members_of(cluster)[0]
    (first.run / "checkpoints").mkdir()
    (first.run / "checkpoints/best.safetensors").write_bytes(b"best" * 1000)
    assert main(["fetch", "lr", "home"]) == 0
    home = Path("home/runs") / first.name
    assert (home / "checkpoints/best.safetensors").read_bytes() == b"best" * 1000
    assert (home / "progress.csv").read_bytes() == (first.run / "progress.csv").read_bytes()
    # A comparison reads no checkpoint.
    compared(capsys, "lr")
    assert list((tmp_path / "cache").rglob("evaluations.csv"))
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["compare", "--json", *words]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_set_is_compared_by_what_its_controller_has(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    result = compared(capsys, "lr")
    assert [group["label"] for group in result["groups"]] == ["lr=0.01", "lr=0.001"]
    assert [len(group["runs"]) for group in result["groups"]] == [3, 3]
    # The second time brings what is new, and forgets what is gone.
    (first, *others) = members_of(cluster)
    rows(first, 100.0)
    shutil.rmtree(others[-1].run)
    assert main(["compare", "lr", "-n", "default"]) == 0
    assert sent(capsys) == 1
    result = compared(capsys, "lr")
    assert result["groups"][0]["label"] == "lr=0.001"
    assert sum(len(group["runs"]) for group in result["groups"]) == 5


def test_a_set_of_this_machine_is_compared_with_one_of_the_cluster(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    for at, member in enumerate(a_set(Path("laptop"))):
        rows(member, 10 + at)
    result = compared(capsys, "./laptop", "lr", "--sorted-finals", "all.png", "--csv", "all.csv")
    assert [len(group["runs"]) for group in result["groups"]] == [6, 6]
    assert Path("all.png").read_bytes().startswith(b"\x89PNG")
    assert len(Path("all.csv").read_text().splitlines()) == 13


def test_a_set_that_has_not_begun_is_told(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    a_set(cluster.set_volume("new"))
    cluster.a_set("new", {})
    cluster.runs_controller("new")
    assert main(["compare", "new"]) == ExitCode.RUN_DIRECTORY
    assert "no run of the set new in namespace default has begun" in capsys.readouterr().err
    assert main(["compare", "pong"]) == ExitCode.USAGE
    assert main(["compare", "pung"]) == ExitCode.RUN_DIRECTORY
    assert "no folder pung here" in capsys.readouterr().err
    Path("lr").mkdir()
    assert main(["compare", "lr"]) == ExitCode.USAGE
