"""The page of exit codes has all of them, in order, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from seedbed.runtime.exit_codes import HELP, ExitCode
from tools.exit_codes_reference import CURES, reference

PAGE = Path(__file__).parents[2] / "docs" / "exit-codes.md"


def test_the_page_has_every_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [(int(code), name) for code, name, _, _ in rows] == [
        (code.value, code.name) for code in ExitCode
    ]


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == reference(), "run 'make docs'"
    assert all(": " in HELP[code] or code in CURES for code in ExitCode), "each code has a cure"


def test_the_page_shows_lines_as_they_are() -> None:
    assert f"seedbed: exit code 13 (BIND): {HELP[ExitCode.BIND]}\n" in PAGE.read_text()
