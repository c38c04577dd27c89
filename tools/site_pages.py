"""Hook of mkdocs: README.md is the first page, links to files beside docs/ lead somewhere."""

import re
import tomllib
from os.path import relpath
from pathlib import Path
from textwrap import dedent
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = PROJECT["urls"].get("Repository", "").rstrip("/")
# Places in the search, of pages and of folders: 1 is as usual.
BOOSTS = {"troubleshooting.md": 2, "runbooks": 0.5, "results": 0.5}

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|[#/])([^)#\s]+)(#[^)\s]*)?\)")

# A block of commands, with the mark that says what runs it (tests/docs/test_block_marks.py).
_COMMANDS = re.compile(r"^(<!-- (?:not )?run\b.*? -->\n\n)((?: {4}.*\n|\n(?= {4}))+)", re.MULTILINE)


def on_config(config: Any) -> None:
    """Show the repository, where there is an address of one, and the version."""
    config.repo_url = REPOSITORY or None
    config.copyright = f"Seedbed {PROJECT['version']}"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page's text for the site: README.md for index.md, with links that lead somewhere."""
    place = page.file.src_uri
    boost = BOOSTS.get(place) or BOOSTS.get(place.partition("/")[0], 1)
    page.meta.setdefault("search", {"boost": boost})
    if place == "index.md":
        return in_colours(with_links((ROOT / "README.md").read_text(), ROOT, place))
    return in_colours(with_links(markdown, (ROOT / "docs" / place).parent, place))


def in_colours(text: str) -> str:
    """Return a text whose blocks of commands are highlighted as a shell's."""
    return _COMMANDS.sub(lambda found: f"{found[1]}```bash\n{dedent(found[2])}```\n", text)


def with_links(text: str, folder: Path, place: str, repository: str = REPOSITORY) -> str:
    """Return a text whose links work on the site.

    A link to a file beside docs/ leads to the repository, or becomes the file's name where no
    repository has an address. A link to a file that does not exist stays, so that the build fails.

    Args:
        text: Markdown.
        folder: Folder that its links are relative to.
        place: Path of the page in docs/.
        repository: Address of the repository; empty: none.
    """

    def changed(match: re.Match[str]) -> str:
        image, words, target, anchor = match.groups(default="")
        file = (folder / target).resolve()
        if not file.exists() or not file.is_relative_to(ROOT):
            return match[0]
        if file.is_relative_to(ROOT / "docs"):
            if file.is_dir():
                file = min(file.glob("*.md"))
            path = relpath(file, (ROOT / "docs" / place).parent)
            return f"{image}[{words}]({path}{anchor})"
        name = file.relative_to(ROOT).as_posix()
        if repository:
            kind = "tree" if file.is_dir() else "raw" if image else "blob"
            return f"{image}[{words}]({repository}/{kind}/HEAD/{name}{anchor})"
        return match[0] if image else f"{words} (`{name}`)"

    return _LINK.sub(changed, text)
