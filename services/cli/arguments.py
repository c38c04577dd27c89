"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """The experiment's YAML and its overrides."""
    parser.add_argument("experiment", metavar="EXPERIMENT.yaml")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=c",
        help="override a key of the experiment (repeatable; the value is YAML)",
    )
