"""`seedbed fetch`: the files of a release come home whole, from whatever has the volume.

`kubectl` is a program that answers from a folder; what would run in a pod runs for real.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode
from tests.support.kubectl_stand_in import StandIn
from tests.support.volume import MIB, mounted, put

OWNER = {"run": "rl/pong/pong", "id": "rl/pong/pong"}
FILES = {
    "experiment.yaml": "seed: 1\n",
    "history.json": json.dumps({"starts": [{"time": 1.0}]}),
    "owner.json": json.dumps(OWNER) + "\n",
    "seedbed.lock": "process 6\n",
    "status.json": "{}",
    "progress.csv": "env_frames\n" + "1\n" * 5000,
    "logs/learner.log": "a line\n" * 100,
    "checkpoints/checkpoint-000000000001.safetensors": "x" * 300_000,
    "empty": "",
}
STAY = ("xla-cache/jit-cache", "seedbed.lock.6", ".tmp-status.json", "checkpoints/a.aside")


def a_run(folder: Path, files: dict[str, str] = FILES) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def found(folder: Path) -> dict[str, str]:
    return {str(x.relative_to(folder)): x.read_text() for x in folder.rglob("*") if x.is_file()}


@pytest.fixture
def cluster(make: Callable[..., StandIn]) -> StandIn:
    """A release of default values that has a run."""
    made = make()
    a_run(made.volume / "pong")
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of this machine."""
    return tmp_path / "home"


def fetch(home: Path) -> int:
    return main(["fetch", "pong", str(home)])


def test_a_running_release_is_read_through_its_learner(
    cluster: StandIn, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(cluster.volume / "pong", dict.fromkeys(STAY, "stays"))
    os.mkfifo(cluster.volume / "pong/learner.sock")
    cluster.pods(["pong-learner-0"])
    assert fetch(home) == 0
    assert found(home) == FILES
    assert not any("create" in call for call in cluster.calls)
    (sent,) = (call for call in cluster.calls if " exec " in call)
    assert "pong-learner-0 --container=learner" in sent
    total = len(FILES)
    assert f"{total} files, 0.3 MB, of which {total} are new" in capsys.readouterr().err
    # Again: what has changed since, and nothing else.
    more = {**FILES, "logs/learner.log": FILES["logs/learner.log"] + "another\n"}
    a_run(cluster.volume / "pong", more)
    before = (home / "progress.csv").stat().st_ino
    assert fetch(home) == 0
    assert found(home) == more
    assert "of which 1 are new" in capsys.readouterr().err
    assert (home / "progress.csv").stat().st_ino == before, "it was not written again"


def test_a_pod_of_its_own_reads_what_no_pod_has(
    cluster: StandIn, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(home) == 0
    assert found(home) == FILES
    pod = cluster.json("created")
    # Nothing that a Service, a network policy or the meter selects.
    assert "app.kubernetes.io/name" not in pod["metadata"]["labels"]
    spec = pod["spec"]
    assert spec["volumes"] == [
        {"name": "runs", "persistentVolumeClaim": {"claimName": "runs-pong-learner-0"}}
    ]
    assert spec["activeDeadlineSeconds"] > 0
    assert "seedbed-cost" in spec["containers"][0]["image"]
    assert spec["containers"][0]["volumeMounts"][0]["readOnly"]
    assert not spec["automountServiceAccountToken"]
    assert any("delete pod pong-fetch-abcde" in call for call in cluster.calls)
    assert "pong-fetch-abcde reads it meanwhile" in capsys.readouterr().err


def test_the_pod_goes_whatever_happens(cluster: StandIn, home: Path) -> None:
    cluster.forbids_exec()
    assert fetch(home) == ExitCode.DEPLOY
    created = [call for call in cluster.calls if " create " in call]
    deleted = [call for call in cluster.calls if " delete pod pong-fetch" in call]
    assert len(created) == len(deleted) > 0


def test_a_claim_of_another_pod_is_read_through_it(cluster: StandIn, home: Path) -> None:
    cluster.pods(["evaluation"], evaluation="runs-pong-learner-0")
    assert fetch(home) == 0
    assert found(home) == FILES
    assert any("exec -i evaluation" in call for call in cluster.calls)


def test_a_broken_connection_goes_on_with_what_is_missing(
    cluster: StandIn, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.pods(["pong-learner-0"])
    # In the first line, after some files, and in the middle of the largest one.
    cluster.breaks(10, 3_000, 50_000)
    assert fetch(home) == 0
    assert found(home) == FILES
    said = capsys.readouterr().err
    assert said.count("again, for what is missing") == 3
    assert f"{len(FILES)} files" in said


def test_a_wrong_byte_is_found(
    cluster: StandIn, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.pods(["pong-learner-0"])
    cluster.breaks(-1_000)  # in the largest file, which is the last one
    assert fetch(home) == 0
    assert "the SHA-256 of checkpoint-000000000001.safetensors is not" in capsys.readouterr().err
    assert found(home) == FILES


def test_connections_that_never_hold_end_with_what_is_whole(
    cluster: StandIn, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.pods(["pong-learner-0"])
    cluster.breaks(*[3_000] * 50)
    assert fetch(home) == ExitCode.DEPLOY
    assert "without one more whole file" in capsys.readouterr().err
    here = found(home)
    assert here.items() <= FILES.items(), "no half file under its name"
    assert not any(".tmp-" in name for name in here)
    cluster.breaks()
    assert fetch(home) == 0
    assert found(home) == FILES


@pytest.mark.parametrize(
    "there",
    [{"notes.txt": "mine"}, {"owner.json": '{"run": "default/other/other", "id": "x"}'}],
)
def test_a_folder_with_something_else_is_refused(
    cluster: StandIn, home: Path, there: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(home, there)
    assert fetch(home) == ExitCode.RUN_DIRECTORY
    assert "not the run rl/pong/pong" in capsys.readouterr().err
    assert found(home) == there


def test_a_run_that_has_gone_on_here_is_kept(
    cluster: StandIn, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = {**FILES, "history.json": json.dumps({"starts": [{"time": 1.0}, {"time": 2.0}]})}
    a_run(home, {**here, "progress.csv": "mine"})
    assert fetch(home) == ExitCode.RUN_DIRECTORY
    assert "started again here" in capsys.readouterr().err
    assert (home / "progress.csv").read_text() == "mine"


def test_a_full_disk_leaves_what_is_whole(
    cluster: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(cluster.volume / "pong/checkpoints/best.safetensors", 3 * MIB)
    cluster.pods(["pong-learner-0"])
    with mounted(tmp_path / "small", 2) as can:
        if not can:
            pytest.skip("needs the right to mount a small volume")
        home = tmp_path / "small/home"
        assert fetch(home) == ExitCode.OUTPUT
        said = capsys.readouterr().err
        assert f"best.safetensors of {3 * MIB:,} bytes, where " in said
        assert found(home) == FILES


def test_several_learners_come_home_as_a_run_of_several(make: Any, home: Path) -> None:
    cluster = make(learner={"replicas": 2})
    a_run(cluster.volume / "pong")
    assert fetch(home) == 0
    assert found(home / "learner-0") == found(home / "learner-1") == FILES
    for name in ("experiment.yaml", "seedbed.lock"):
        assert (home / name).read_text() == FILES[name]
    claims = [call for call in cluster.calls if "persistentvolumeclaim" in call]
    assert [call.split()[3] for call in claims] == ["runs-pong-learner-0", "runs-pong-learner-1"]


def test_learners_of_several_hosts_share_a_volume(make: Any, home: Path) -> None:
    cluster = make(learner={"replicas": 2, "hosts": 2, "persistence": {"type": "pvc"}})
    for rank in range(2):
        a_run(cluster.volume / f"pong/learner-{rank}", {**FILES, "seed": str(rank)})
    assert fetch(home) == 0
    assert (home / "learner-1/seed").read_text() == "1"
    claim = cluster.json("created")["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert claim == "runs-pong-learner"


def test_checkpoints_elsewhere_are_named_and_those_on_the_volume_come(
    make: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = make(learner={"persistence": {"checkpoints": "gs://bucket/path"}})
    a_run(cluster.volume / "pong")
    assert fetch(home) == 0
    assert "gs://bucket/path/rl/pong/pong" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_checkpoints_beside_the_run_directory_come_too(
    make: Any, home: Path, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = {"checkpoint": {"directory": f"{scheme}/runs/ck"}}
    cluster = make(experiment={"environment": {"id": "CartPole-v1"}, "learner": learner})
    own = {name: text for name, text in FILES.items() if "checkpoints" not in name}
    own["owner.json"] = '{"run": "rl/two/two", "id": "x"}'
    a_run(cluster.volume / "pong", own)
    a_run(cluster.volume / "ck/rl/pong/pong", {"checkpoint-1.safetensors": "x"})
    assert fetch(home) == 0
    said = capsys.readouterr().err
    assert "is of the run rl/two/two, and not of rl/pong/pong" in said
    assert "where `seedbed evaluate` reads them" not in said
    there = found(home) | {"owner.json": own["owner.json"]}
    assert there == {**own, "checkpoints/checkpoint-1.safetensors": "x"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"learner": {"persistence": {"type": "none", "checkpoints": "gs://b/p"}}},
            "no such pod runs, and its checkpoints are in gs://b/p/rl/pong/pong",
        ),
        ({}, "is Pending: no learner has had it yet"),
    ],
)
def test_what_cannot_be_read_is_said(
    make: Any, home: Path, values: Any, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(**values).unbound()
    assert fetch(home) == ExitCode.DEPLOY
    assert sentence in capsys.readouterr().err


def test_a_run_that_has_not_begun_is_said(
    make: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make()
    assert fetch(home) == ExitCode.RUN_DIRECTORY
    assert "has not begun" in capsys.readouterr().err


def test_an_unknown_release_names_those_that_are_there(
    make: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make()
    assert main(["fetch", "pung", str(home)]) == ExitCode.DEPLOY
    assert "no release pung in namespace default; there: pong" in capsys.readouterr().err
