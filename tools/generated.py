"""Committed files that a program of this folder generates: written, or compared with `--check`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def write_or_check(wanted: Mapping[Path, str], source: str) -> int:
    """Write the files; with `--check` write nothing, and return 1 where one of them differs.

    Args:
        wanted: Text of each file.
        source: File that says what they hold, for the error message.
    """
    wrong = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" not in sys.argv[1:]:
        for path in wrong:
            path.write_text(wanted[path])
        return 0
    for path in wrong:
        print(f"{path.name} is not what {source} says: run 'make docs'", file=sys.stderr)
    return 1 if wrong else 0
