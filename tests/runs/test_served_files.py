"""Files of a run as a learner serves them: generations, and what counts as read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from seedbed.runs.served_files import FILES, MAX_PIECE_BYTES, ServedFiles
from seedbed.runtime.files import atomic_write


def ask(files: ServedFiles, name: str, generation: str = "", offset: int = 0) -> dict[str, Any]:
    answer = files.answer(f"file={name}&generation={generation}&offset={offset}")
    head, _, piece = answer.partition(b"\n")
    found: dict[str, Any] = json.loads(head)
    return {**found, "piece": piece}


def test_rows_have_one_generation_until_they_are_replaced_or_cut(tmp_path: Path) -> None:
    """For a reader that sends no digest."""
    path = tmp_path / "progress.csv"
    path.write_text("a,b\n1,2\n")
    files = ServedFiles(tmp_path, lambda: False)
    first = ask(files, "progress.csv")["generation"]
    with path.open("a") as file:
        file.write("3,4\n5,")
    more = ask(files, "progress.csv", first, 8)
    assert (more["generation"], more["offset"], more["piece"]) == (first, 8, b"3,4\n5,")
    os.truncate(path, 12)  # the next row drops half a one
    with path.open("a") as file:
        file.write("7,8\n9,10\n")
    files = ServedFiles(tmp_path, lambda: False)
    assert ask(files, "progress.csv", first, 12)["offset"] == 12, "a restart is no new generation"
    ask(files, "progress.csv")
    os.truncate(path, 8)
    cut = ask(files, "progress.csv", first, 8)
    assert cut["generation"] != first
    assert (cut["offset"], cut["piece"]) == (0, b"a,b\n1,2\n")
    assert ask(files, "progress.csv", cut["generation"], 8)["offset"] == 8
    atomic_write(path, "a,b\n5,6\n7,8\n")
    replaced = ask(files, "progress.csv", cut["generation"], 8)
    assert replaced["generation"] != cut["generation"]
    assert replaced["offset"] == 0
    atomic_write(path, "a,b,c\n5,6,7\n7,8,9\n")
    assert ask(files, "progress.csv", replaced["generation"], 8)["offset"] == 0


def test_a_file_that_is_written_over_in_place_has_another_generation(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text("[1]")
    os.utime(path, ns=(1, 1))
    files = ServedFiles(tmp_path, lambda: False)
    first = ask(files, "history.json")["generation"]
    path.write_text("[2]")
    again = ask(files, "history.json", first, 3)
    assert again["generation"] != first
    assert (again["offset"], again["piece"]) == (0, b"[2]")


def test_a_file_that_is_missing_is_no_error(tmp_path: Path) -> None:
    found = ask(ServedFiles(tmp_path, lambda: False), "evaluations.csv", "g", 7)
    assert found == {"generation": "", "offset": 0, "size": 0, "missing": True, "piece": b""}


def test_a_file_is_read_once_its_last_byte_was_sent_after_the_end(tmp_path: Path) -> None:
    over = False
    (tmp_path / "progress.csv").write_bytes(b"x\n" * MAX_PIECE_BYTES)
    files = ServedFiles(tmp_path, lambda: over)
    for name in FILES:
        ask(files, name)
    (tmp_path / "summary.json").write_text("{}")
    assert not files.are_read
    over = True
    assert not files.are_read, "what was read before may have changed since"
    for name in FILES:
        head = ask(files, name)
    assert not files.are_read, "progress.csv has a second piece"
    head = ask(files, "progress.csv")
    ask(files, "progress.csv", head["generation"], MAX_PIECE_BYTES)
    assert files.are_read
    (tmp_path / "evaluations.csv").write_text("a\n")
    assert not files.are_read
    ask(files, "evaluations.csv")
    assert files.are_read
