"""Output of commands: a text for people, JSON for programs."""

import argparse
import json
import sys
from typing import Any


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    text = "print the JSON object on a terminal, too (elsewhere it always goes to stdout)"
    parser.add_argument("--json", action="store_true", help=text)


def print_result(args: argparse.Namespace, result: Any) -> None:
    """Print a JSON object to stdout, but on a terminal only where it is wanted.

    Args:
        args: of a parser with `add_json`.
        result: the object.
    """
    if args.json or not sys.stdout.isatty():
        print(json.dumps(result), flush=True)
