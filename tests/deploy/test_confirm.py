"""`seedbed deploy --confirm`: what a cluster has measured is ranked here, by the laptop's code."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli.main import main
from seedbed.config.load import dump_experiment
from seedbed.deploy.set_names import Before, names_of_runs
from seedbed.runs.evaluations import append_evaluation
from seedbed.runtime.exit_codes import ExitCode
from seedbed.services.sets.spec import read_spec
from seedbed.sets.confirmation import read_choice
from seedbed.sets.folder import Member, confirming, read_members, write_set
from seedbed.sets.resolve import resolve
from seedbed.sets.sweep import read_sweep
from tests.support.chart import helm
from tests.support.kubectl_stand_in import StandIn

LR = "learner.optimizer.learning_rate"
STOP = 1000
SETTINGS = (f"{LR}=1e-3,2e-3,1e-2", f"stop.env_frames={STOP}", "stop.mean_return=null")
SCORES = {1e-3: 300.0, 2e-3: 100.0, 1e-2: 200.0}


def sweep(*settings: str) -> list[str]:
    words = [word for text in settings or SETTINGS for word in ("--set", text)]
    return ["sweep", "cartpole-vtrace", "--name", "lr", *words, "--seeds", "3", "--print"]


def deploy(*words: str, settings: Sequence[str] = SETTINGS) -> list[str]:
    given = [word for text in settings for word in ("--set", f"experiment.{text}")]
    name = ("--name", "lr", "--seeds", "3", "--max-learners", "2")
    return ["deploy", "cartpole-vtrace", *name, *given, *words]


def trained(member: Member) -> None:
    """Leave the rows of a finished run, as a controller has them."""
    member.run.mkdir(parents=True)
    (member.run / "experiment.yaml").write_text(dump_experiment(member.experiment))
    mean = SCORES[member.values[LR]] + member.experiment.seed % 7
    row = {"env_frames": STOP, "updates": 9, "episodes": 20, "policy": "sample", "mean": mean,
           "checkpoint": "checkpoint-9", "training_seconds": 60.0,
           "human_normalised": None}  # fmt: skip
    append_evaluation(member.run, row)
    counters = {"env_frames": STOP, "updates": 9, "seconds": 60.0, "dollars": 0.01}
    (member.run / "status.json").write_text(json.dumps({"counters": counters}))
    ended = {**counters, "stop_reason": f"stop.env_frames: {STOP}", "evaluation": {"updates": 9}}
    (member.run / "summary.json").write_text(json.dumps(ended))


@pytest.fixture
def cluster(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A set `lr` of nine runs, of which none has begun."""
    made: StandIn = make()
    (made.folder / "bin" / "helm").symlink_to(helm())
    monkeypatch.setenv("KUBECONFIG", str(made.folder / "claim.json"))  # any file
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main([*sweep(), "--out", str(made.set_volume("lr"))]) == 0
    members = read_members(made.set_volume("lr"))
    made.a_set("lr", {one.name: {"state": "waiting"} for one in members})
    made.runs_controller("lr")
    return made


def rendered(file: Path) -> tuple[dict[str, Any], set[str]]:
    """The ConfigMap that the controller reads, and the runs that its Role names."""
    objects = [one for one in yaml.safe_load_all(file.read_text()) if one]
    (spec,) = (one for one in objects if one["metadata"]["name"] == "lr-set"
               and one["kind"] == "ConfigMap")  # fmt: skip
    (role,) = (one for one in objects if one["metadata"]["name"] == "lr-set"
               and one["kind"] == "Role")  # fmt: skip
    names = {name.removesuffix("-learner") for rule in role["rules"]
             if rule["resources"] == ["statefulsets"]
             for name in rule.get("resourceNames", [])}  # fmt: skip
    return spec, names


def as_controller(spec: dict[str, Any], mount: Path, folder: Path) -> list[str]:
    """What a controller makes of its folder: the names of the runs that confirm."""
    mount.mkdir(exist_ok=True)
    for name, text in spec["data"].items():
        (mount / name).write_text(text)
    for name, text in spec["binaryData"].items():
        (mount / name).write_bytes(base64.b64decode(text))
    found = read_spec(mount)
    write_set(folder, found.wanted)
    assert found.fresh is not None
    write_set(folder, found.fresh, confirms=True)
    for member in read_members(folder):
        found.template(member.experiment)
    return sorted(confirming(folder))


def test_the_best_two_are_confirmed_as_on_a_laptop(
    cluster: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, out = cluster.set_volume("lr"), tmp_path / "out"
    for member in read_members(there):
        trained(member)
    assert main(deploy("--confirm", "2", "--dry-run")) == 0
    said = capsys.readouterr().err
    assert f"confirm: 4 runs on fresh seeds, of {LR}=0.001 and {LR}=0.01" in said
    assert "with them, to go: 4 runs, 4.00K frames" in said
    assert "volumes of 13 runs" in said
    assert main(deploy("--confirm", "2", "--render", str(out))) == 0
    spec, names = rendered(out / "set.yaml")
    before = read_members(there)
    fresh = as_controller(spec, tmp_path / "spec", there)
    assert {*fresh} | {one.name for one in before} == names, "no more and no less"
    # What a laptop adds to the same folder: nothing.
    assert main(["sweep", str(there), "--confirm", "2", "--print"]) == 0
    assert len(read_members(there)) == 13
    # A command without it keeps it, and so does the same one.
    text = (out / "set.yaml").read_text()
    capsys.readouterr()
    assert main(deploy("--render", str(out))) == 0
    assert "confirm: 4 runs on fresh seeds" in capsys.readouterr().err
    assert (out / "set.yaml").read_text() == text
    assert main(deploy("--confirm", "2", "--render", str(out))) == 0
    assert (out / "set.yaml").read_text() == text
    # Another checksum restarts the controller.
    plain = tmp_path / "plain"
    assert main(deploy("--render", str(plain))) == 0
    sums = [next(line for line in file.read_text().splitlines() if "checksum/set" in line)
            for file in (out / "set.yaml", plain / "set.yaml")]  # fmt: skip
    assert sums[0] != sums[1]


def test_more_axes_leave_what_was_confirmed_as_it_is(cluster: StandIn, tmp_path: Path) -> None:
    there, out = cluster.set_volume("lr"), tmp_path / "out"
    for member in read_members(there):
        trained(member)
    assert main(deploy("--confirm", "1", "--render", str(out))) == 0
    _, before = rendered(out / "set.yaml")
    more = (*SETTINGS, "learner.batch_size=8,16")
    assert main(deploy("--render", str(out), settings=more)) == 0
    spec, names = rendered(out / "set.yaml")
    assert "confirm.json" not in spec["data"]
    assert before < names


def test_what_cannot_be_ranked_is_refused(
    cluster: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    confirm = ("--confirm", "2", "--dry-run")
    assert main(deploy(*confirm)) == ExitCode.RUN_DIRECTORY
    said = capsys.readouterr().err
    assert "without it the same command trains it. no run of the set lr" in said
    first, second, *_ = read_members(cluster.set_volume("lr"))
    for member in (first, second):
        trained(member)
    for name in ("summary.json", "evaluations.csv"):
        (second.run / name).unlink()
    assert main(deploy(*confirm)) == ExitCode.CONFIG
    assert "has 1 settings with a result, and --confirm takes the best 2" in capsys.readouterr().err
    other = ("learner.optimizer.learning_rate=1e-3,2e-3", "learner.batch_size=64")
    assert main(deploy(*confirm, settings=other)) == ExitCode.RESUME_REFUSED
    assert "learner.batch_size" in capsys.readouterr().err
    assert main(deploy(*confirm, "--name", "rates")) == ExitCode.DEPLOY
    assert "no release rates" in capsys.readouterr().err


def test_the_roles_hold_the_names_of_settings_that_read_alike(tmp_path: Path) -> None:
    """Each setting is confirmed by itself, so that their names collide in the folder first."""
    projects = "logging.wandb.project"
    axes = [f"{projects}=a_b,a__b", "logging.wandb.enabled=true"]
    found = read_sweep("cartpole-vtrace", axes, {"name": "s"})
    wanted = resolve(found, "a sweep")
    settings = [dict(run.values) for run in wanted.runs]
    fresh = read_choice(wanted, json.dumps({"settings": settings, "seeds": 2}))
    assert len({run.name for run in fresh.runs}) == 2, "of four runs"
    write_set(tmp_path, wanted)
    write_set(tmp_path, fresh, confirms=True)
    every = replace(wanted, runs=[*wanted.runs, *fresh.runs])
    assert {one.name for one in read_members(tmp_path)} <= {
        *names_of_runs(every, Before(every, []))
    }
