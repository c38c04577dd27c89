"""Output of commands: a text for people, JSON for programs."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from seedbed.runtime import streams


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    text = (
        "print the JSON object on a terminal, and in a log that takes stdout and stderr, too "
        "(elsewhere it always goes to stdout)"
    )
    parser.add_argument("--json", action="store_true", help=text)


def print_result(args: argparse.Namespace, result: Any) -> None:
    """Print a JSON object to stdout, but only where it is wanted on a terminal or in a log.

    Args:
        args: of a parser with `add_json`.
        result: the object.
    """
    if args.json or not (streams.result().isatty() or streams.is_one_log()):
        emit(json.dumps(result))


def emit(text: str) -> None:
    """Print to the stdout of the command, whatever other code prints to its own."""
    print(text, file=streams.result(), flush=True)


def columns(rows: Sequence[Sequence[str] | str], align: str) -> str:
    """Return rows whose columns line up.

    Args:
        rows: Cells of each row; a text alone is a line that no column follows.
        align: A letter a column: `<` to the left, `>` to the right.
    """
    cells = [row for row in rows if not isinstance(row, str)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in rows:
        if not isinstance(row, str):
            places = zip(row, align, widths, strict=True)
            row = "  ".join(f"{cell:{side}{width}}" for cell, side, width in places)
        lines.append(row.rstrip())
    return "\n".join(lines)
