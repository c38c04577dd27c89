"""The rows of a learner: copied while it trains, over its death, and to the end."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seedbed.runs.directory import open_run_directory
from seedbed.runs.served_files import FILES
from seedbed.services.cost.learners import read_learner
from seedbed.sets.remote_rows import RowsReader
from tests.services.cost.test_last_read import ALL, SetScene
from tests.support.echo_actor import Actor
from tests.support.null_model import NullLearner, experiment, null_learner
from tests.support.processes import START_S, cluster, free_port, guarded
from tests.support.waiting import wait_for

PAGE = Path(__file__).parents[3] / "docs" / "run-directory.md"


def frames_of(path: Path) -> list[int]:
    """The column env_frames of a copy; each row has as many cells as the header."""
    if not (path / "progress.csv").exists():
        return []
    with (path / "progress.csv").open(newline="") as file:
        names, *rows = csv.reader(file)
    assert all(len(row) == len(names) for row in rows)
    return [int(row[names.index("env_frames")]) for row in rows]


def same_files(run: Path, copy: Path) -> None:
    for name in FILES:
        here, there = run / name, copy / name
        assert here.exists() == there.exists(), name
        assert not here.exists() or here.read_bytes() == there.read_bytes(), name


def status_of(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/status", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@contextmanager
def lingering(learner: NullLearner) -> Iterator[None]:
    """The learner after its end, as in a cluster."""
    thread = threading.Thread(target=learner.serve_until_stopped, daemon=True)
    thread.start()
    try:
        yield
    finally:
        learner.stop("the test is over")
        thread.join(30)
        assert not thread.is_alive()


def test_the_rows_of_a_run_until_its_meter_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, copy, run = free_port(), tmp_path / "copy", tmp_path / "run"
    url = f"http://127.0.0.1:{port}"
    settings = (f"learner.metrics_port={port}", "logging.interval_s=0.05", "stop.env_frames=3000")
    reader = RowsReader(url, None)
    with null_learner(tmp_path, monkeypatch, *settings) as learner:
        wait_for(lambda: reader.copy(copy) or len(frames_of(copy)) >= 3, "rows before its end")
        assert (copy / "experiment.yaml").read_bytes() == (run / "experiment.yaml").read_bytes()
        assert not (copy / "summary.json").exists()
        assert status_of(url)["rows_read"] is False
        (run / "summary.json").write_text("{}")
        assert reader.copy(copy) is False, "no condition is met"
        (run / "summary.json").unlink()
        assert reader.copy(copy) is False
        assert not (copy / "summary.json").exists()
        actor = Actor(learner.address)
        assert learner.ended.wait(60)
        actor.thread.join(30)
        with lingering(learner):
            wait_for(lambda: read_learner(f"{url}/status"), "it stays")
            scene = SetScene()
            scene.goal = scene.goal._replace(run="run")
            monkeypatch.setattr(scene, "_ask", lambda _: read_learner(f"{url}/status"))
            scene.meter = scene.new()
            scene.meter.reconcile()
            scene.looks()
            assert scene.cluster.calls == ["actor"], "nobody has read the end"
            assert reader.copy(copy) is True
            assert status_of(url)["rows_read"] is True
            scene.looks()
            assert scene.cluster.calls == ALL
            same_files(run, copy)
            assert frames_of(copy)[-1] >= 3000
            assert RowsReader(url, None).copy(tmp_path / "another") is True
    same = [name for name in FILES if (tmp_path / "another" / name).exists()]
    assert same == ["progress.csv", "summary.json", "experiment.yaml", "history.json"]


def test_the_query_of_the_page_brings_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = re.findall(r"curl '127\.0\.0\.1:9090(.*)'", PAGE.read_text())
    port = free_port()
    settings = (f"learner.metrics_port={port}", "logging.interval_s=0.05")

    def ask(generation: str, offset: int) -> tuple[dict[str, Any], bytes]:
        query = line.replace("GENERATION", generation).replace("BYTES", str(offset))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{query}", timeout=10) as answer:
            head, _, piece = answer.read().partition(b"\n")
        return json.loads(head), piece

    with null_learner(tmp_path, monkeypatch, *settings):
        wait_for(lambda: ask("", 0)[1].count(b"\n") > 2, "rows")
        head, rows = ask("", 0)
        wait_for(lambda: ask(head["generation"], len(rows))[1], "a row more")
        head, more = ask(head["generation"], len(rows))
        assert head["offset"] == len(rows)
        assert not head["missing"]
        assert (tmp_path / "run" / "progress.csv").read_bytes().startswith(rows + more)


def test_another_host_of_a_learner_serves_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    config = experiment(f"learner.metrics_port={port}")
    with open_run_directory(tmp_path / "run", config) as run:
        learner = NullLearner(config, run, "127.0.0.1:0", SimpleNamespace())
        monkeypatch.setattr(learner, "hosts", SimpleNamespace(is_first=False))
        learner._serve_http()
        assert learner._http is not None
        try:
            assert "rows_read" not in status_of(f"http://127.0.0.1:{port}")
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/rows?file=progress.csv")
        finally:
            learner._http.close()


@pytest.mark.slow
def test_rows_over_kill_9_and_a_resume_to_the_end(tmp_path: Path) -> None:
    wire, port, copy = f"127.0.0.1:{free_port()}", free_port(), tmp_path / "copy"
    url = f"http://127.0.0.1:{port}"
    settings = (f"learner.metrics_port={port}", "stop.env_frames=12000")
    with cluster(tmp_path, *settings) as it:
        arguments = ("learner", "--linger", "--listen", wire, "--run-dir", str(it.run))

        def copied(reader: RowsReader) -> bool:
            try:
                return reader.copy(copy)
            except OSError:  # not listening yet
                return False

        learner = it.start(*arguments)
        it.start("actor", "--learner", wire, "--index", "0")
        reader = RowsReader(url, None)
        # The first update brings columns, and with them another generation.
        it.trains(learner)
        wait_for(lambda: not copied(reader) and len(frames_of(copy)) >= 5, "rows", START_S)
        os.kill(guarded(learner.pid), signal.SIGKILL)
        learner.wait()
        before = frames_of(copy)
        with (it.run / "progress.csv").open("ab") as file:
            file.write(b"12,0.")  # as a kill in the midst of a row leaves it
        inode = (copy / "progress.csv").stat().st_ino
        again = it.start(*arguments)
        # Another controller, too, which has the folder alone.
        reader = RowsReader(url, None)
        wait_for(
            lambda: copied(reader) or len(frames_of(copy)) > len(before),
            "rows of the resume",
            START_S,
        )
        assert frames_of(copy)[: len(before)] == before
        wait_for(lambda: copied(reader), "the end", START_S)
        assert (copy / "progress.csv").stat().st_ino == inode, "no row came twice"
        same_files(it.run, copy)
        assert status_of(url)["rows_read"] is True
        again.runs()
