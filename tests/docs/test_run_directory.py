"""docs/run-directory.md names every file of a run."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from seedbed.runs import directory

PAGE = Path(__file__).parents[2] / "docs/run-directory.md"
FIRST_CELL = re.compile(r"^\| (`.*?) \|", re.MULTILINE)
NAMES = [
    re.sub(r"(?<![A-Za-z])[NMRH](?![A-Za-z])", "*", name)
    for cell in FIRST_CELL.findall(PAGE.read_text())
    for name in re.findall(r"`([^`]+)`", cell)
]


@pytest.mark.slow
def test_every_file_of_a_short_run_is_on_the_page(short_run: Path) -> None:
    files = [str(p.relative_to(short_run)) for p in short_run.rglob("*") if not p.is_dir()]
    assert {"seedbed.lock", "summary.json", "logs/actor-0.log"} <= set(files)
    assert [file for file in files if not any(fnmatch(file, name) for name in NAMES)] == []


def test_every_file_that_overwrite_deletes_is_on_the_page() -> None:
    wanted = [re.sub(r"\[0-9\]|\*", "1", name) for name in directory._OWN_FILES]
    assert [name for name in wanted if any(fnmatch(name, one) for one in NAMES)] == wanted
