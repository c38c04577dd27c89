"""`seedbed analyze` on the files of a run, and on runs that cannot be reported."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.analysis.events import events_file
from seedbed.cli.main import main
from seedbed.config import parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runtime.exit_codes import ExitCode
from tests.support.gossip_files import Gossip, ring


def write_experiment(run_dir: Path, **learners: Any) -> None:
    """experiment.yaml, as `seedbed train` leaves it."""
    learners = {"replicas": 3, "staleness": 3, "snapshot_every_s": 0.05} | learners
    text = f"environment: {{id: CartPole-v1}}\nname: rings\ngossip: {json.dumps(learners)}\n"
    (run_dir / "experiment.yaml").write_text(dump_experiment(parse_experiment(text)))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    gossip = Gossip(ring(3), delay=1, every_s=0.05, update=0.1)
    for tick in range(1000):
        gossip.tick()
        if tick == 500:
            gossip.stop(2)
        elif tick == 600:
            gossip.come_back(2)
    gossip.write(tmp_path)
    write_experiment(tmp_path)
    return tmp_path


def fails(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["analyze", str(run_dir)]) == ExitCode.RUN_DIRECTORY
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_a_run_is_summed_up_in_files_and_on_both_streams(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for iteration in (0, 500):
        for i in range(3):
            file = events_file(run_dir, i).with_name(f"gradient-{iteration}.npy")
            np.save(file, rng.normal(size=7).astype(np.float32))
    out = tmp_path / "elsewhere"
    assert main(["analyze", str(run_dir), "--out", str(out)]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["events"]["update"] == 1000
    assert result["events"]["adopt"] == 1
    assert result["window"] == 1
    assert result["segments"] == 1
    assert result["violations_frobenius"] == result["violations_spread"] == 0
    assert {mark["what"] for mark in result["marks"]} == {"restart", "graph"}
    assert result["gradients"]["iterations"] == 2
    assert result["gradients"]["cosine_similarity_others"] is None, "a ring of 3 has only peers"
    assert result["files"] == [
        str(out / n) for n in ("consensus.csv", "consensus.png", "gradients.png")
    ]
    for name in ("consensus.png", "gradients.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    with (out / "consensus.csv").open() as file:
        rows = list(csv.DictReader(file))
    true = [row for row in rows if row["distance_spread"]]
    assert len(true) == result["snapshots"] > 10
    assert float(true[-1]["distance_frobenius"]) == result["distance_frobenius_last"]
    assert len([row for row in rows if row["bound_frobenius"] and not row["snapshot"]]) == 500
    for text in ("3 learners, 1,000 updates", "Frobenius norm", "spread", "Proposition 2"):
        assert text in captured.err


def test_without_matplotlib_the_table_is_there_and_it_is_said(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["analyze", str(run_dir)]) == 0
    captured = capsys.readouterr()
    assert "pip install '.[plots]'" in captured.err
    assert json.loads(captured.out)["files"] == [str(run_dir / "analysis" / "consensus.csv")]
    assert [path.name for path in (run_dir / "analysis").iterdir()] == ["consensus.csv"]


def test_void_graphs_and_two_segments_are_drawn(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = events_file(run_dir, 0)
    last = file.read_text().splitlines()[-1].split(",")[0]
    file.write_text(f"{file.read_text()}{last},graph,1,void,0 1\n{last},start,1,,\n")
    assert main(["analyze", str(run_dir)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [mark["what"] for mark in result["marks"]][-2:] == ["void", "restart"]
    assert result["marks"][-2]["alive"] == [0, 1]


def test_a_cut_off_last_line_is_no_event(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = events_file(run_dir, 1)
    file.write_text(file.read_text() + "1001.5,update,10000,0.12")
    assert main(["analyze", str(run_dir)]) == 0
    assert json.loads(capsys.readouterr().out)["events"]["update"] == 1000


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1000.1,update,", "3 fields"),
        ("1000.1,update,1,nan,", "norm of an update is nan"),
        ("1000.1,mix,1,,0@5", "'0@5' is not SENDER@VERSION*WEIGHT"),
        ("1000.1,mix,1,,0@5*0.7 2@5*0.7", "weigh 1.4"),
        ("1000.1,adopt,1,,0@5*0.7", "weigh 0.7"),
        ("1000.1,sleep,1,,", "no such kind: 'sleep'"),
    ],
)
def test_a_damaged_line_is_named(
    run_dir: Path, line: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = events_file(run_dir, 1)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:9], line, *lines[9:]]) + "\n")
    error = fails(run_dir, capsys)
    assert f"line 10 of {file}" in error
    assert why in error


def test_a_message_of_no_log_is_counted(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = events_file(run_dir, 1)
    file.write_text(file.read_text() + "1002.0,mix,999,,0@12345*0.5\n")
    assert main(["analyze", str(run_dir)]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["events"]["lost"] == 1
    assert "1 mixes or adoptions are of messages that no log has" in captured.err


def test_runs_without_what_it_takes(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_experiment(run_dir, replicas=1)
    assert "one learner" in fails(run_dir, capsys)
    write_experiment(run_dir, topology="allreduce")
    assert "do not gossip" in fails(run_dir, capsys)
    write_experiment(run_dir, replicas=4)
    assert "learner-3/gossip/events.csv has no events" in fails(run_dir, capsys)
    write_experiment(run_dir, snapshot_every_s=0.0)
    assert "gossip.snapshot_every_s (it is 0)" in fails(run_dir, capsys)
    write_experiment(run_dir)
    snapshots = sorted(run_dir.glob("learner-1/gossip/snapshot-*.npy"))
    np.save(snapshots[2], np.zeros(6, np.float32))
    assert f"{snapshots[2]} has the shape (6,)" in fails(run_dir, capsys)
    snapshots[2].write_bytes(snapshots[1].read_bytes()[:100])
    assert f"{snapshots[2]} is no whole array" in fails(run_dir, capsys)
    for snapshot in snapshots:
        snapshot.unlink()
    assert "learner-1: 0" in fails(run_dir, capsys)
    (run_dir / "experiment.yaml").unlink()
    assert "name the run directory that holds experiment.yaml" in fails(run_dir, capsys)
