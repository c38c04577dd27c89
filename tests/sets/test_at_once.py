"""Several commands over one set at the same time, and a set that trains longer than it was to."""

from __future__ import annotations

from pathlib import Path

import pytest

import seedbed
from seedbed.checkpoints.store import CheckpointStore
from seedbed.runs.evaluations import read_evaluations
from seedbed.runs.progress import load_progress
from seedbed.runtime.exit_codes import ExitCode
from seedbed.sets.folder import read_members
from tests.sets.test_driver import SMALL
from tests.support.processes import Process


@pytest.mark.slow
def test_commands_at_once_write_one_set(tmp_path: Path) -> None:
    source, folder = tmp_path / "small.yaml", tmp_path / "set"
    source.write_text(SMALL)
    words = ("sweep", str(source), "--out", str(folder), "--print")
    writers = [Process(tmp_path / f"{n}", *words, "--seeds", f"{n}") for n in (1, 2, 3, 4, 4, 4)]
    assert [writer.wait() for writer in writers] == [0] * 6, [one.said for one in writers]
    members = read_members(folder)
    assert len({member.name for member in members}) == len(members) == 4
    assert sorted(member.experiment.seed for member in members) == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_run_that_is_started_twice_trains_once_and_later_for_longer(tmp_path: Path) -> None:
    source, folder = tmp_path / "small.yaml", tmp_path / "set"
    source.write_text(SMALL)
    words = ("sweep", str(source), "--out", str(folder))
    assert Process(tmp_path / "a", *words, "--print").wait() == 0
    line = ("sweep", str(folder), "--line", "1")
    both = [Process(tmp_path / name, *line) for name in ("b", "c")]
    assert sorted(one.wait() for one in both) == [0, ExitCode.RUN_DIRECTORY]
    assert any("is in use by process" in one.said for one in both)
    (member,) = read_members(folder)
    rows = load_progress(member.run)
    assert (rows["updates"][1:] >= rows["updates"][:-1]).all()
    (first,) = seedbed.load_runs(folder).compare()["groups"]
    assert first["states"] == {"finished": 1}

    longer = Process(tmp_path / "d", *words, "--set", "stop.env_frames=8000")
    assert longer.wait() == 0, longer.said
    (member,) = read_members(folder)
    assert member.summary()["env_frames"] >= 8000
    more = load_progress(member.run)
    assert (more["updates"][: len(rows["updates"])] == rows["updates"]).all(), "the CSV goes on"
    before = float(first["env_frames"])
    at_first_end = seedbed.load_runs(folder).compare(at=before)
    assert at_first_end["groups"][0]["final"]["mean"] == first["final"]["mean"]

    alone = Process(tmp_path / "e", "train", str(member.run), "--set", "stop.env_frames=12000")
    assert alone.wait() == 0, alone.said
    again = Process(tmp_path / "f", *words, "--set", "stop.env_frames=8000")
    assert again.wait() == 0, again.said
    assert again.summary()["finished"] == [member.name], "it has met the stop of the set"
    best = CheckpointStore(str(member.run / "checkpoints")).best_evaluation()
    means = [float(row["mean"]) for row in read_evaluations(member.run)]
    assert len(means) == 3
    assert best == max(means)
