"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from typing import TypeAlias

from services.common.tls import Tls

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_tls(parser: argparse.ArgumentParser) -> None:
    """The folder of certificates."""
    parser.add_argument(
        "--tls",
        metavar="DIR",
        help="mTLS with the tls.crt, tls.key and ca.crt in this folder, on both ends",
    )


def tls_of(args: argparse.Namespace) -> Tls | None:
    """What `--tls` names.

    Raises:
        SeedbedError: a file is missing there.
    """
    return Tls(args.tls) if args.tls else None


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
