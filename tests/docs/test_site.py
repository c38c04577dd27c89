"""The site's menu has every page; `make site` fails on links and anchors that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.source_imports import ROOT
from tools.site_pages import in_colours, with_links

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


@pytest.mark.parametrize(
    ("folder", "place", "link", "expected"),
    [
        ("docs", "a.md", "[x](b.md#c)", "[x](b.md#c)"),  # no such page: the build says so
        ("docs", "a.md", "[x](gossip.md#c)", "[x](gossip.md#c)"),
        ("docs/results", "results/a.md", "[x](../gossip.md)", "[x](../gossip.md)"),
        ("docs", "a.md", "[x](../LICENSE)", "[x](https://host/us/blob/HEAD/LICENSE)"),
        (
            "docs/results",
            "results/a.md",
            "[`x`](../../seedbed/spec.py#L3)",
            "[`x`](https://host/us/blob/HEAD/seedbed/spec.py#L3)",
        ),
        ("docs", "a.md", "[x](../k8s/argo)", "[x](https://host/us/tree/HEAD/k8s/argo)"),
        ("docs", "a.md", "[x](../helm/none.md)", "[x](../helm/none.md)"),
        ("docs", "a.md", "[x](../../none.md)", "[x](../../none.md)"),
        ("docs", "a.md", "[x](https://a.b/c)", "[x](https://a.b/c)"),
        (".", "index.md", "![x](docs/results/pong-vtrace.png)", "![x](results/pong-vtrace.png)"),
        (".", "index.md", "[x](docs/gossip.md#c)", "[x](gossip.md#c)"),
        (".", "index.md", "[x](CHANGELOG.md)", "[x](https://host/us/blob/HEAD/CHANGELOG.md)"),
        (
            ".",
            "index.md",
            "[x](docs/runbooks)",
            "[x](runbooks/SeedbedActorsCrashLooping.md)",
        ),
    ],
)
def test_a_link_leads_to_the_page_or_the_repository(
    folder: str, place: str, link: str, expected: str
) -> None:
    assert with_links(link, ROOT / folder, place, "https://host/us") == expected


def test_without_a_repository_a_file_is_named() -> None:
    link = "[values](../helm/seedbed/values.yaml)"
    assert with_links(link, ROOT / "docs", "a.md", "") == "values (`helm/seedbed/values.yaml`)"
    missing = "[values](../helm/none.yaml)"
    assert with_links(missing, ROOT / "docs", "a.md", "") == missing


def test_marked_commands_are_coloured_and_output_is_not() -> None:
    block = "Do:\n\n<!-- {} -->\n\n    make run\n\n    make test\n\nThen.\n"
    for mark in ("run", "run by tests/x.py", "not run here: minutes"):
        assert "\n```bash\nmake run\n\nmake test\n```\n\nThen." in in_colours(block.format(mark))
    assert in_colours(block.format("output")) == block.format("output")
