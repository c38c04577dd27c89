"""`seedbed check`: check a machine, an environment or a learner before a run depends on it."""

from __future__ import annotations

import argparse

from seedbed.cli import check_env, check_learner, check_machine
from seedbed.cli.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the parsers of `check machine`, `check env` and `check learner`."""
    parser = subparsers.add_parser("check", help="check a machine, an environment or a learner")
    parts = parser.add_subparsers(dest="part", required=True, metavar="machine|env|learner")
    for module in (check_machine, check_env, check_learner):
        module.add_parser(parts)


def run(args: argparse.Namespace) -> int:
    """Run the named check, and return its exit code.

    Raises:
        SeedbedError: as the check does.
    """
    return int(args.check(args))
