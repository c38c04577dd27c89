"""docs/troubles-of-sets.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/troubles-of-sets.md"
TEST = re.compile(r"`((?:tests/(?:\w+/)+)?\w+\.py)::(\w+)`")


def test_every_test_of_the_page_is_there_and_every_trouble_has_one() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!trouble|-)", line)]
    assert len(rows) >= 40
    for row in rows:
        found = TEST.findall(row)
        assert found, row
        for file, name in found:
            path = ROOT / (file if "/" in file else f"tests/sets/{file}")
            assert f"\ndef {name}(" in path.read_text(), f"{file}::{name}"
