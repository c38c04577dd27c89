"""Output of commands: a text for people, JSON for programs."""

import argparse
import json
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
