"""The blocks of commands on the pages, each with the mark above it.

A mark is a comment of HTML, which no reader of the page sees:

    <!-- run -->                      tests/docs/test_run_blocks.py runs the block
    <!-- run by tests/x/test_y.py --> another test runs what the block has
    <!-- not run here: REASON -->     nothing runs it, with what it would need
    <!-- output -->                   no commands: what a command has printed
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.support.source_imports import ROOT

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "helm").rglob("*.md")),
]
PROGRAM = re.compile(
    r"(?:\w+=\S+ +)*(?:\S*/)?(?:cp|curl|diff|docker|gcloud|git|helm|kill|kind|kubectl|make|mkdir"
    r"|openssl|pip|py-spy|python|sbatch|seedbed|srun|systemctl|tensorboard) "
)
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*) -->\n\n?)?"
    r"(?:^```(?P<language>\w*)\n(?P<fenced>.*?)^```$|(?<=\n\n)(?P<indented>(?:^    .*?\n\n?)+))",
    re.MULTILINE | re.DOTALL,
)
SHELL = (None, "sh", "bash")


class Block(NamedTuple):
    page: str
    line: int  # its place in the page, from 1
    mark: str  # "" where it has none
    commands: tuple[str, ...]  # a continued line is joined, and has no comment


def blocks(page: Path) -> list[Block]:
    """Return the indented and the shell's blocks of a page that have a line with a program."""
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        body = match["indented"] or match["fenced"]
        lines = re.sub(r"\\\n\s*", "", body).splitlines()
        commands = tuple(re.sub(r"\s+# .*", "", line).strip() for line in lines if line.strip())
        if match["language"] in SHELL and any(PROGRAM.match(one) for one in commands):
            line = text[: match.start()].count("\n") + 1
            found.append(Block(str(page.relative_to(ROOT)), line, match["mark"] or "", commands))
    return found
