"""The route /rows: no file but those of the list, no more than a piece at once."""

from __future__ import annotations

import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from seedbed.runs.served_files import FILES, MAX_PIECE_BYTES, ServedFiles
from seedbed.runtime.http import MetricsServer

SECRET = "secret-0123456789abcdef"
ROWS = "env_frames\n1\n"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "progress.csv").write_text(SECRET)
    (run / "owner.json").write_text(SECRET)
    (run / "progress.csv").write_text(ROWS)
    files = ServedFiles(run, lambda: False)
    server = MetricsServer(0, CollectorRegistry(), rows=files.answer)
    yield server.port
    server.close()


def ask(port: int, query: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/rows{query}", timeout=10) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "owner.json",
        "../progress.csv",
        "..%2Fprogress.csv",
        "..%252Fprogress.csv",
        "./progress.csv",
        "progress.csv/",
        "progress.csv%00",
        "%00",
        "/etc/passwd",
        "file%3A///etc/passwd",
        "PROGRESS.CSV",
        "progress.csv%0Asummary.json",
        "%FF",
        "checkpoints",
        "best.safetensors",
        "checkpoints/../owner.json",
        "checkpoints/checkpoint-000000000001.safetensors",
        ".",
        "x" * 5000,
        "progress.csv&file=owner.json",
    ],
)
def test_no_other_file_is_served(port: int, name: str) -> None:
    code, text = ask(port, f"?file={name}&offset=0")
    assert code == 400
    assert SECRET.encode() not in text
    assert text.startswith(b"file=")
    assert len(text) < 1000
    for file in FILES:
        assert file.encode() in text


@pytest.mark.parametrize(
    "offset",
    ["-1", "1.0", "1e3", "0x1", "", "+1", "%201", "1_0", "%D9%A1", "9" * 16, "9" * 5000, "nan"],
)
def test_an_offset_that_is_none_is_refused(port: int, offset: str) -> None:
    code, text = ask(port, f"?file=progress.csv&offset={offset}")
    assert code == 400
    assert b"must be a number of bytes" in text
    assert len(text) < 1000


def test_a_query_of_many_fields_is_refused(port: int) -> None:
    code, text = ask(port, "?file=progress.csv" + "&a=1" * 100)
    assert code == 400
    assert b"query" in text


def test_an_offset_beyond_the_end_begins_anew(port: int) -> None:
    _, first = ask(port, "?file=progress.csv")
    generation = first.partition(b'"generation": "')[2].partition(b'"')[0].decode()
    whole = len(ROWS)
    code, at_end = ask(port, f"?file=progress.csv&generation={generation}&offset={whole}")
    assert (code, at_end.partition(b"\n")[2]) == (200, b"")
    for offset in (whole + 1, 1 << 53):
        code, text = ask(port, f"?file=progress.csv&generation={generation}&offset={offset}")
        assert code == 200
        assert b'"offset": 0' in text
        assert text.partition(b"\n")[2].decode() == ROWS
    _, other = ask(port, f"?file=progress.csv&generation=x&offset={whole}")
    assert other.partition(b"\n")[2].decode() == ROWS


def test_no_answer_has_more_than_a_piece(port: int, tmp_path: Path) -> None:
    size = 2 * MAX_PIECE_BYTES + 5
    (tmp_path / "run" / "history.json").write_bytes(b"x" * size)
    seen = 0
    generation = ""
    while seen < size:
        _, answer = ask(port, f"?file=history.json&generation={generation}&offset={seen}")
        head, _, piece = answer.partition(b"\n")
        generation = head.partition(b'"generation": "')[2].partition(b'"')[0].decode()
        assert len(piece) == min(MAX_PIECE_BYTES, size - seen)
        seen += len(piece)


def test_mutated_queries_bring_rows_or_a_sentence(port: int) -> None:
    draw = random.Random(36)
    parts = ["file=", "progress.csv", "&", "=", "offset=", "generation=", "digest=", "%00", "%FF",
             "-", "9", "0", "../", ";", "#", "?", "%0d%0a", "summary.json", "a"]  # fmt: skip
    for _ in range(300):
        query = "".join(draw.choice(parts) for _ in range(draw.randrange(12)))
        code, text = ask(port, "?" + query)
        assert code in (200, 400), (query, code, text)
        assert SECRET.encode() not in text
