"""Files that the documentation names are there."""

from __future__ import annotations

import re

import pytest

from tests.support.source_imports import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
NAMED = re.compile(
    r"`((?:seedbed|services|bench|tools|tests|proto|k8s|helm|experiments)/[\w./-]+)`"
)
LINK = re.compile(r"\]\((?!https?:)([^)#\[]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    missing = {name for name in NAMED.findall(text) if not (ROOT / name).exists()}
    folder = (ROOT / page).parent
    missing |= {link for link in LINK.findall(text) if not (folder / link).exists()}
    assert missing == set()


def test_a_page_links_every_result() -> None:
    """The file behind a figure is found without a search."""
    linked = {
        (page.parent / link).resolve()
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for link in LINK.findall(page.read_text())
    }
    files = {file for file in (ROOT / "docs" / "results").iterdir() if file.suffix != ".md"}
    assert files
    assert files - linked == set()
