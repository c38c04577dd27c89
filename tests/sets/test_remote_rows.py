"""The copy of a run's files, of a learner that trains, resumes, ends, breaks or lies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from seedbed.checkpoints.store import BEST
from seedbed.runs.served_files import BEST_FILE, FILES, MAX_PIECE_BYTES, ServedFiles
from seedbed.runtime.files import atomic_write
from seedbed.runtime.http import MetricsServer
from seedbed.sets import remote_rows
from seedbed.sets.remote_rows import RowsReader
from seedbed.telemetry.progress import ProgressFile


class Run:
    """A run directory behind the HTTP of a learner, and the folder of its copies."""

    def __init__(self, path: Path) -> None:
        self.path, self.copy = path / "run", path / "copy"
        self.path.mkdir()
        self.over = False
        self.rows = ProgressFile(self.path / "progress.csv")
        self.asked: list[str] = []
        self.asked_status = 0
        self.start()
        atomic_write(self.path / "experiment.yaml", "name: a\n")
        atomic_write(self.path / "history.json", "[]\n")

    def start(self) -> None:
        """Serve as a process that has just begun."""
        self.files = ServedFiles(self.path, lambda: self.over)
        self.server = MetricsServer(
            0, CollectorRegistry(), rows=self._rows,
            status=self._status,
        )  # fmt: skip

    def _rows(self, query: str) -> bytes:
        self.asked.append(query)
        return self.files.answer(query)

    def _status(self) -> dict[str, Any]:
        self.asked_status += 1
        return {"rows_read": self.files.are_read}

    def restart(self) -> None:
        self.server.close()
        self.rows = ProgressFile(self.path / "progress.csv")
        self.start()

    def reader(self, keeps_best: bool = False) -> RowsReader:
        url = f"http://127.0.0.1:{self.server.port}"
        return RowsReader(url, None, keeps_best=keeps_best)

    def save_best(self, content: bytes) -> None:
        (self.path / BEST_FILE).parent.mkdir(exist_ok=True)
        atomic_write(self.path / BEST_FILE, content)

    @property
    def best(self) -> bytes | None:
        """The copy of the best checkpoint."""
        file = self.copy / BEST_FILE
        return file.read_bytes() if file.exists() else None

    def end(self) -> None:
        self.over = True
        atomic_write(self.path / "summary.json", '{"updates": 3}\n')

    def is_copied(self) -> None:
        """Fail where a copy is not the file's whole lines."""
        for name in FILES:
            here, there = self.path / name, self.copy / name
            assert here.exists() == there.exists(), name
            if here.exists():
                content = here.read_bytes()
                if name.endswith(".csv"):
                    content = content[: content.rfind(b"\n") + 1]
                assert there.read_bytes() == content, name


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.server.close()


def sent(run: Run, reader: RowsReader) -> int:
    """Bytes of files in the answers of one copy."""
    before = len(run.asked)
    reader.copy(run.copy)
    answers = [run.files.answer(query) for query in run.asked[before:]]
    return sum(len(answer.partition(b"\n")[2]) for answer in answers)


def test_rows_come_as_they_are_written_and_once(run: Run) -> None:
    reader = run.reader()
    for frames in range(5):
        run.rows.append({"env_frames": frames, "mean_return": 0.5})
        assert reader.copy(run.copy) is False
        run.is_copied()
    run.rows.append({"env_frames": 5, "mean_return": 0.5})
    assert sent(run, reader) < 100
    assert sent(run, reader) == 0
    assert not run.asked_status, "before the end nothing is asked but the files"


def test_a_wider_header_takes_the_place_of_the_copy(run: Run) -> None:
    reader = run.reader()
    run.rows.append({"env_frames": 1})
    reader.copy(run.copy)
    run.rows.append({"env_frames": 2, "loss": 0.25})
    reader.copy(run.copy)
    run.is_copied()
    assert (run.copy / "progress.csv").read_text() == "env_frames,loss\n1,\n2,0.25\n"


def test_a_half_row_is_left_where_it_is(run: Run) -> None:
    reader = run.reader()
    run.rows.append({"env_frames": 1})
    with (run.path / "progress.csv").open("a") as file:
        file.write("12")
    reader.copy(run.copy)
    run.is_copied()
    with (run.path / "progress.csv").open("a") as file:
        file.write("345\n")
    reader.copy(run.copy)
    run.is_copied()


@pytest.mark.parametrize("knows", [True, False], ids=["same reader", "new reader"])
def test_a_resume_that_drops_rows_begins_the_copy_anew(run: Run, knows: bool) -> None:
    """The learner drops a row that a kill had cut in the middle of the file."""
    for frames in range(3):
        run.rows.append({"env_frames": frames, "loss": 1.0})
    with (run.path / "progress.csv").open("a") as file:
        file.write("9\n")
    run.rows.append({"env_frames": 4, "loss": 1.0})
    reader = run.reader()
    reader.copy(run.copy)
    run.restart()
    run.rows.append({"env_frames": 5, "loss": 1.0})
    run.rows.append({"env_frames": 6, "loss": 1.0})
    old, reader = reader, run.reader()
    if knows:
        reader._drafts = old._drafts
    reader.copy(run.copy)
    run.is_copied()
    assert "9\n" not in (run.copy / "progress.csv").read_text()


def test_a_restart_sends_no_row_twice(run: Run) -> None:
    for frames in range(50):
        run.rows.append({"env_frames": frames, "loss": 1.0})
    run.reader().copy(run.copy)
    with (run.path / "progress.csv").open("a") as file:
        file.write("50,")
    run.reader().copy(run.copy)
    run.restart()  # which drops the half row
    run.rows.append({"env_frames": 50, "loss": 1.0})
    assert sent(run, run.reader()) < 20
    run.is_copied()


def test_rows_that_a_power_loss_took_and_others_replaced_begin_anew(run: Run) -> None:
    for frames in range(10):
        run.rows.append({"env_frames": frames, "loss": 1.0})
    run.reader().copy(run.copy)
    path = run.path / "progress.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    os.truncate(path, sum(map(len, lines[:5])))
    run.restart()
    for frames in range(100, 120):
        run.rows.append({"env_frames": frames, "loss": 1.0})
    run.reader().copy(run.copy)
    run.is_copied()


def test_a_file_that_has_gone_has_no_copy(run: Run) -> None:
    """A resume removes summary.json: the run goes on."""
    run.rows.append({"env_frames": 1})
    run.end()
    run.reader().copy(run.copy)
    run.is_copied()
    run.over = False
    for name in ("summary.json", "progress.csv"):
        (run.path / name).unlink()
    run.restart()
    assert run.reader().copy(run.copy) is False
    run.is_copied()


def test_a_new_process_goes_on_from_what_is_there(run: Run) -> None:
    for frames in range(100):
        run.rows.append({"env_frames": frames})
    run.reader().copy(run.copy)
    with (run.copy / "progress.csv").open("ab") as file:
        file.write(b"10")  # killed as it wrote
    run.rows.append({"env_frames": 100})
    assert sent(run, run.reader()) < 20
    run.is_copied()


def test_a_copy_that_is_damaged_begins_anew(run: Run) -> None:
    for frames in range(100):
        run.rows.append({"env_frames": frames})
    run.reader().copy(run.copy)
    path = run.copy / "progress.csv"
    path.write_bytes(path.read_bytes().replace(b"99\n", b"98\n"))
    run.reader().copy(run.copy)
    run.is_copied()


def test_a_long_file_comes_in_pieces_and_appears_at_its_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_rows, "MAX_PIECES", 2)
    path = run.path / "progress.csv"
    row = b"1," + b"2" * 997 + b"\n"
    path.write_bytes(b"env_frames,x\n" + row * 5000)
    reader = run.reader()
    for _ in range(2):
        assert reader.copy(run.copy) is False
        assert not (run.copy / "progress.csv").exists()
    reader.copy(run.copy)
    run.is_copied()
    # Begun anew: what was copied stays until all is there.
    path.write_bytes(b"env_frames,y\n" + row * 5000)
    reader.copy(run.copy)
    assert (run.copy / "progress.csv").read_bytes().startswith(b"env_frames,x\n")
    # Another process begins the draft anew.
    other = run.reader()
    for _ in range(3):
        other.copy(run.copy)
    run.is_copied()
    assert max(len(run.files.answer(query)) for query in run.asked) < MAX_PIECE_BYTES + 200


def test_the_end_is_known_once_all_is_here(run: Run) -> None:
    reader = run.reader()
    run.rows.append({"env_frames": 1})
    assert reader.copy(run.copy) is False
    run.end()
    assert not run.files.are_read
    assert reader.copy(run.copy) is True
    assert run.files.are_read
    run.is_copied()
    run.rows.append({"env_frames": 2})
    assert not run.files.are_read, "a last row that was late"
    assert reader.copy(run.copy) is True
    run.is_copied()


def test_a_summary_before_the_end_of_a_resumed_run_is_no_end(run: Run) -> None:
    run.end()
    run.over = False
    assert run.reader().copy(run.copy) is False
    assert not run.files.are_read


def test_the_best_checkpoint_comes_at_the_end_and_in_pieces(run: Run) -> None:
    assert f"checkpoints/{BEST}" == BEST_FILE
    content = os.urandom(3 * MAX_PIECE_BYTES + 5)
    run.rows.append({"env_frames": 1})
    run.save_best(b"of an earlier evaluation")
    reader = run.reader(keeps_best=True)
    assert reader.copy(run.copy) is False
    assert run.best is None, "a better one may follow"
    run.save_best(content)
    run.end()
    assert run.reader().copy(tmp := run.copy.with_name("other")) is False, "another asked for it"
    assert not (tmp / "checkpoints").exists()
    before = len(run.asked)
    assert reader.copy(run.copy) is True
    assert run.best == content
    sizes = [len(run.files.answer(query)) for query in run.asked[before:] if "best" in query]
    assert max(sizes) < MAX_PIECE_BYTES + 200
    assert sent(run, reader) == 0
    # The run goes on, and another reader has the folder alone.
    run.over = False
    (run.path / "summary.json").unlink()
    assert run.reader(keeps_best=True).copy(run.copy) is False
    assert run.best is None
    run.save_best(b"better")
    run.end()
    assert run.reader(keeps_best=True).copy(run.copy) is True
    assert run.best == b"better"
    assert not list(run.copy.rglob(".tmp-*"))


def test_a_best_checkpoint_that_was_asked_for_is_to_be_read(run: Run) -> None:
    run.rows.append({"env_frames": 1})
    run.save_best(b"best")
    run.reader(keeps_best=True).copy(run.copy)
    run.end()
    for name in FILES:
        run.files.answer(f"file={name}")
    assert not run.files.are_read
    run.files.answer(f"file={BEST_FILE}")
    assert run.files.are_read
    run.save_best(b"late")
    assert not run.files.are_read


def test_a_run_without_a_best_checkpoint_is_read_without_it(run: Run) -> None:
    run.end()
    assert run.reader(keeps_best=True).copy(run.copy) is True
    assert run.best is None


@pytest.mark.parametrize("limit", ["MAX_BEST_BYTES", "RESERVE_BYTES"])
def test_a_best_checkpoint_without_room_leaves_the_rows(
    run: Run, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(remote_rows, limit, 3 if limit == "MAX_BEST_BYTES" else 1 << 60)
    run.rows.append({"env_frames": 1})
    run.save_best(b"best")
    run.end()
    assert run.reader(keeps_best=True).copy(run.copy) is False
    run.is_copied()
    assert run.best is None
    assert not list(run.copy.rglob(".tmp-*"))


def test_a_best_checkpoint_that_breaks_off_is_none(tmp_path: Path) -> None:
    def answer(path: str) -> bytes:
        if "best" not in path:
            return head(missing=True, size=0)
        begin = int(path.partition("offset=")[2].partition("&")[0])
        return head(size=10, offset=begin) + (b"" if begin else b"abc")

    with learner_that_answers(answer) as url:
        assert RowsReader(url, None, keeps_best=True).copy(tmp_path) is False
    assert not (tmp_path / BEST_FILE).exists()


Answer = Callable[[str], bytes]


@contextmanager
def learner_that_answers(answer: Answer, status: int = 200, location: str = "") -> Iterator[str]:
    """An HTTP server with bytes of its own for each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer(self.path)
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def head(**other: Any) -> bytes:
    sound = {"generation": "g", "offset": 0, "size": 4, "missing": False}
    return json.dumps({**sound, **other}).encode() + b"\n"


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no line": b"{}",
    "HTML": b"<html>\n</html>\n",
    "no object": b"[]\nabc\n",
    "lacks a key": b'{"generation": "g"}\nabc\n',
    "deep": b"[" * 1000 + b"\nabc\n",
    "long head": b" " * 5000 + head() + b"abc\n",
    "number for a name": head(generation=3) + b"abc\n",
    "long name": head(generation="g" * 300) + b"abc\n",
    "boolean for a number": head(offset=False) + b"abc\n",
    "negative": head(offset=-4) + b"abc\n",
    "fraction": head(size=4.0) + b"abc\n",
    "infinite": b'{"generation": "g", "offset": 0, "size": Infinity, "missing": false}\nabc\n',
    "beyond what was asked": head(offset=40, size=44) + b"abc\n",
    "more than its size": head(size=2) + b"abc\n",
    "huge size": head(size=1 << 60) + b"abc\n",
    "a size of many volumes": head(size=1 << 40) + b"abc\n",
    "more than a piece": head(size=1 << 22) + b"a\n" * (1 << 20),
    "a line without end": head(size=1 << 22) + b"a" * (1 << 20),
    "less than it says": head(size=1000) + b"abc",
    "no bytes of many": head(size=1000),
    "text for a boolean": head(missing="yes") + b"abc\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_that_is_wrong_changes_no_copy(run: Run, name: str) -> None:
    run.rows.append({"env_frames": 1})
    run.end()
    run.reader().copy(run.copy)
    before = {path.name: path.read_bytes() for path in run.copy.iterdir()}
    with learner_that_answers(lambda _: HOSTILE[name]) as url:
        for _ in range(3):
            with pytest.raises(ValueError, match=url):
                RowsReader(url, None).copy(run.copy)
    after = {path.name: path.read_bytes() for path in run.copy.iterdir()}
    draft = after.pop(".tmp-progress.csv", b"")
    assert after == before
    assert len(draft) <= MAX_PIECE_BYTES
    run.rows.append({"env_frames": 2})
    run.reader().copy(run.copy)
    run.is_copied()


@pytest.mark.parametrize("content", [b"{", b'"text"', b"\xff\xfe", b"[" * 100_000, b"7"])
def test_a_summary_that_is_none_is_not_taken(tmp_path: Path, content: bytes) -> None:
    def answer(path: str) -> bytes:
        if "summary.json" in path:
            return head(size=len(content)) + content
        return head(missing=True, size=0)

    with learner_that_answers(answer) as url, pytest.raises(ValueError, match=r"summary\.json"):
        RowsReader(url, None).copy(tmp_path)
    assert not (tmp_path / "summary.json").exists()


def test_a_learner_that_never_ends_a_file_holds_up_nobody(tmp_path: Path) -> None:
    asked = []

    def answer(path: str) -> bytes:
        asked.append(path)
        return head(generation=f"g{len(asked)}", size=1 << 25) + b"a\n"

    with learner_that_answers(answer) as url:
        assert RowsReader(url, None).copy(tmp_path) is False
    assert len(asked) < 3 * remote_rows.MAX_PIECES
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1000


def test_a_learner_that_is_slow_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def answer(path: str) -> bytes:
        clock[0] += 6.0
        begin = int(path.partition("offset=")[2].partition("&")[0])
        return head(offset=begin, size=1 << 20) + b"a\n"

    monkeypatch.setattr(remote_rows, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with learner_that_answers(answer) as url:
        reader = RowsReader(url, None)
        for copies in (1, 2):
            with pytest.raises(TimeoutError, match="not read after 20 s"):
                reader.copy(tmp_path)
            assert (tmp_path / ".tmp-progress.csv").read_bytes() == b"a\n" * 4 * copies


def test_a_whole_file_that_grows_for_ever_is_refused(tmp_path: Path) -> None:
    def answer(path: str) -> bytes:
        if "csv" in path:
            return head(missing=True, size=0)
        begin = int(path.partition("offset=")[2].partition("&")[0])
        return head(size=1 << 28, offset=begin) + b"a" * (1 << 20)

    with learner_that_answers(answer) as url, pytest.raises(ValueError, match="too many"):
        RowsReader(url, None).copy(tmp_path)


def test_a_refusal_and_a_learner_that_is_away_are_errors(tmp_path: Path) -> None:
    with (
        learner_that_answers(lambda _: b"no", status=403) as url,
        pytest.raises(OSError, match="403"),
    ):
        RowsReader(url, None).copy(tmp_path)
    with pytest.raises(OSError, match="refused"):
        RowsReader(url, None).copy(tmp_path)


def test_nothing_is_written_through_a_link(run: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"ours\n")
    run.rows.append({"env_frames": 1})
    run.copy.mkdir()
    for name in ("progress.csv", ".tmp-progress.csv"):
        (run.copy / name).symlink_to(outside)
        with pytest.raises(OSError, match=r"progress\.csv"):
            run.reader().copy(run.copy)
        (run.copy / name).unlink()
    assert outside.read_bytes() == b"ours\n"


def test_the_reader_is_without_models() -> None:
    program = """
import sys
for name in ("keras", "tensorflow", "jax", "scipy", "grpc", "google.protobuf"):
    sys.modules[name] = None
import seedbed.sets.remote_rows
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
