"""What a power cut leaves: everything that was reported, and nothing that is half written."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.checkpoints.store import CheckpointStore
from seedbed.replay import mapped_files
from seedbed.replay.mapped_files import FileBuffer, open_buffer
from seedbed.runs import history
from seedbed.runs.directory import open_run_directory
from seedbed.runs.evaluations import append_evaluation, read_evaluations
from seedbed.runtime.files import read_object
from seedbed.telemetry.progress import ProgressFile
from tests.faults import power
from tests.support import run_writer
from tests.support.replay_content import SPEC, check_whole, chunk


def newest(stated: list[str], what: str) -> int:
    """The newest number that was stated of a file, 0 before the first."""
    return max((int(text.split()[1]) for text in stated if text.split()[0] == what), default=0)


def check_checkpoints(run: Path, stated: list[str]) -> None:
    store = CheckpointStore(str(run / "checkpoints"))
    begun, reported = newest(stated, "begun"), newest(stated, "checkpoint")
    for name in store.names():
        checkpoint = store.read(name)  # whole, each of them
        (array,) = checkpoint.arrays.values()
        np.testing.assert_array_equal(array, float(checkpoint.updates))
    found = store.newest()
    assert reported <= (0 if found is None else found.updates) <= begun
    if newest(stated, "best"):
        assert newest(stated, "best") <= store.read("best").updates <= begun


def check_progress(run: Path, stated: list[str]) -> None:
    """The rows that were there, and the row after them."""
    begun, reported = newest(stated, "begun"), newest(stated, "row")
    if not newest(stated, "open"):
        return
    ProgressFile(run / "progress.csv").append(run_writer.row_of(99))
    with (run / "progress.csv").open(newline="") as file:
        *rows, last = [{k: v for k, v in row.items() if v} for row in csv.DictReader(file)]
    wanted = [run_writer.row_of(number) for number in range(1, begun + 1)]
    texts = [{name: str(value) for name, value in row.items()} for row in wanted]
    assert rows in (texts[:reported], texts[:begun])
    assert last == {name: str(value) for name, value in run_writer.row_of(99).items()}


def check_evaluations(run: Path, stated: list[str]) -> None:
    begun, reported = newest(stated, "begun"), newest(stated, "evaluation")
    if not newest(stated, "open"):
        return
    append_evaluation(run, run_writer.evaluation_of(99))
    found = [int(row["updates"]) for row in read_evaluations(run)]
    texts = (run / "evaluations.csv").read_text()
    assert "\0" not in texts
    assert found in ([*range(1, reported + 1), 99], [*range(1, begun + 1), 99])
    assert len(texts.splitlines()) == len(found) + 1


def check_run(run: Path, stated: list[str]) -> None:
    """The run resumes, with its own settings, at the newest checkpoint."""
    status = read_object(run / "status.json")
    if newest(stated, "status"):
        frames = status["counters"]["env_frames"]
        assert newest(stated, "status") <= frames / 100 <= newest(stated, "begun")
    if newest(stated, "summary"):
        assert read_object(run / "summary.json")["env_frames"] == 800
    for claim in run.glob("seedbed.lock.*"):
        os.utime(claim, (0, 0))  # the machine has started again, which takes longer than a claim
    with open_run_directory(run, run_writer.experiment()) as opened:
        resumed = opened.resume_from
    reported = newest(stated, "checkpoint")
    assert reported <= (0 if resumed is None else resumed.updates)
    assert newest(stated, "open") == 0 or (run / "experiment.yaml").read_text()


def read_at_start(run: Path) -> object:
    """What decides how a run is opened; disks that have it in common are opened once."""
    files = ("seedbed.lock", "experiment.yaml", "history.json", "summary.json", "status.json")
    texts = [file.read_bytes() if (file := run / name).exists() else None for name in files]
    return tuple(texts), tuple(CheckpointStore(str(run / "checkpoints")).names())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_cut_at_any_moment_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Half a second each time.
    monkeypatch.setattr(history, "_packages", dict)
    monkeypatch.setattr(history, "_commit", lambda: ("", None))
    disk = tmp_path / "disk"
    disk.mkdir()
    record = power.record(disk, "tests.support.run_writer")
    assert not record.mapped, "writes to mapped files are not in the record"
    opened = set()
    for place, stated in record.cuts(tmp_path / "cuts", seeds=(1,)):
        run = place / run_writer.RUN
        kind = read_at_start(run)
        for check in (check_checkpoints, check_progress, check_evaluations):
            check(run, stated)
        if kind not in opened:
            opened.add(kind)
            check_run(run, stated)
        shutil.rmtree(place)
    assert len(opened) > 50
    assert newest(record.stated, "checkpoint") == 2 * run_writer.UPDATES


BLOCK = 64  # bytes that are old or new together: finer than any disk writes


def test_a_cut_costs_a_shard_no_more_than_the_newest_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are mapped: each block is as old as the newest sync, or of any moment since."""
    capacity, draw = 32, np.random.default_rng(5)
    everything = (np.arange(400) + 0.5) / 400
    moments: list[dict[str, bytes]] = []

    def look() -> None:
        moments.append({file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()})

    commit = mapped_files.FileBuffer._commit

    def looked_at(buffer: FileBuffer, *arguments: Any) -> None:
        look()  # emptied and written, and without a key
        commit(buffer, *arguments)

    monkeypatch.setattr(mapped_files.FileBuffer, "_commit", looked_at)
    kept = []
    for life in range(2):  # the second one overwrites what the first one has synced
        buffer = open_buffer(tmp_path / "a", SPEC, capacity, 0.7)
        moments.clear()
        look()
        for number in range(8):
            buffer.add(chunk(SPEC, life, number, 3))
            look()
        for cut in range(6):
            copy = tmp_path / f"{life}-{cut}"
            copy.mkdir()
            for name, newest in moments[-1].items():
                disks = [moment[name] for moment in moments[: 3 * cut + 2]]
                if not name.endswith(".bin"):
                    disks = disks[:1]  # replay.json is written and synced by calls
                newest = b"".join(
                    disks[-1 if draw.random() < 0.95 else draw.integers(len(disks))][
                        at : at + BLOCK
                    ]
                    for at in range(0, len(newest), BLOCK)
                )
                (copy / name).write_bytes(newest)
            found = open_buffer(copy, SPEC, capacity, 0.7)
            kept.append(found.ring.size)
            assert found.corrupt + found.ring.size <= capacity
            if found.sampleable:
                check_whole(SPEC, found.sample(everything))
            found.close()
            shutil.rmtree(copy)
        buffer.close()
    assert min(kept) < max(kept), "some cuts lose sequences that others keep"
