"""Compare the 57 games of the Atari benchmark.

`seedbed sweep atari57` trains their set here, and `seedbed deploy atari57 --max-learners N` on a
cluster. `table` prints Table 10 of the SEED paper with the set's scores beside.
"""

import argparse
import json
from pathlib import Path

from seedbed.cli.output import emit
from seedbed.cli.suite_table import page, table
from seedbed.sets.folder import read_members


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `suite table`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    text = "print Table 10 of the SEED paper with the set's scores, and its aggregates"
    add = actions.add_parser("table", help=text, description=text).add_argument
    add("directory", metavar="DIR", type=Path, help="folder of the set")
    add("--json", action="store_true", help="print JSON instead of the table")


def run(args: argparse.Namespace) -> None:
    """Print the table.

    Raises:
        SeedbedError: CONFIG or RUN_DIRECTORY, an experiment or the folder is wrong.
    """
    result = table(read_members(args.directory))
    if args.json:
        emit(json.dumps(result, indent=1, ensure_ascii=False))
        return
    emit(page(result))
