"""The command line takes the pages' `seedbed` lines, and the example of each `--help`."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex

import pytest

from seedbed.cli.main import COMMANDS, EXAMPLES
from tests.support.source_imports import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
CONTINUED = re.compile(r"\\\n\s*")
# Indented, or in a fence that begins at the margin.
INDENTED = re.compile(r"^    seedbed (.*)$", re.MULTILINE)
FENCED = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def lines(text: str) -> list[str]:
    text = CONTINUED.sub("", text.partition("<!-- output -->")[0])
    fenced = "\n".join(FENCED.findall(text))
    return INDENTED.findall(text) + re.findall(r"^(?:\S*/)?seedbed (.*)$", fenced, re.MULTILINE)


PAGES_LINES = [(page, line) for page in PAGES for line in lines((ROOT / page).read_text())]


@pytest.mark.parametrize(
    ("page", "line"), [*PAGES_LINES, *(("help", x) for x in EXAMPLES.values())]
)
def test_a_line_parses(page: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    # An ending `&`, a pipe or a redirection belongs to the shell.
    words = shlex.split(re.split(r" [|>&]", line)[0], comments=True)
    assert words[0] in COMMANDS, line
    name = "bench.main" if words[0] == "bench" else f"seedbed.cli.{words[0]}"
    parser = argparse.ArgumentParser()
    importlib.import_module(name).add_arguments(parser)
    try:
        parser.parse_args(words[1:])
    except SystemExit as end:
        if end.code == 0:  # `--help`
            return
        pytest.fail(f"{page}: seedbed {line}: {capsys.readouterr().err[-300:]}")


def test_token_files_of_the_lines_are_made() -> None:
    every = [line for _, line in PAGES_LINES] + list(EXAMPLES.values())
    named = {name for line in every for name in re.findall(r"--token-file tokens/(\w+)", line)}
    assert named <= {"actor", "learner", "shard", "observer"}


def test_there_are_such_lines() -> None:
    assert len(PAGES_LINES) >= 20
