"""Every block of commands on a page carries a mark: what runs it, or why nothing does."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import PAGES, ROOT, Block, blocks

BLOCKS = [pytest.param(b, id=f"{b.page}:{b.line}") for page in PAGES for b in blocks(page)]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_carries_a_mark(block: Block) -> None:
    run_by = re.fullmatch(r"run by (\S+)", block.mark)
    if run_by:
        assert (ROOT / run_by[1]).is_file(), block
        return
    assert block.mark in ("run", "output") or block.mark.startswith("not run here: "), block


def test_blocks_are_found() -> None:
    pages = {one.values[0].page for one in BLOCKS}
    assert len(BLOCKS) >= 40
    assert {"README.md", "docs/kubernetes.md", "docs/results/README.md"} <= pages
