"""The site's menu has every page; `make site` fails on links and anchors that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.source_imports import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for part in entry.values() if isinstance(entry, dict) else entry * isinstance(entry, list):
        yield from pages(part)


def test_every_page_is_in_the_menu_once() -> None:
    every = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(pages(SITE["nav"])) == sorted(every)


def test_the_site_is_strict_and_needs_no_network() -> None:
    assert SITE["strict"] is True
    assert SITE["validation"] == dict.fromkeys(
        ("omitted_files", "unrecognized_links", "anchors"), "warn"
    )
    assert SITE["theme"]["font"] is False
    # With --quiet mkdocs counts no warnings, and strict lets everything pass.
    build = re.search(r"mkdocs build.*", (ROOT / "Makefile").read_text())
    assert build
    assert build[0] == "mkdocs build --strict"
