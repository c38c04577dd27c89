"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import signal
from typing import TypeAlias

from seedbed.rpc.tls import Tls
from seedbed.runtime.signals import signal_on_parent_exit

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Add `--tls`, the folder of certificates."""
    parser.add_argument(
        "--tls",
        metavar="DIR",
        help="mTLS with the tls.crt, tls.key and ca.crt in this folder, on both ends",
    )


def tls_of(args: argparse.Namespace) -> Tls | None:
    """Read the certificates of `--tls`; return None without it.

    Raises:
        SeedbedError: A file is missing in the folder.
    """
    return Tls(args.tls) if args.tls else None


def add_parent(parser: argparse.ArgumentParser, hidden: bool = False) -> None:
    """Add `--exit-with-parent`, for processes that Seedbed starts."""
    text = "end when the parent process PID ends, even by kill -9"
    parser.add_argument(
        "--exit-with-parent",
        type=int,
        metavar="PID",
        help=argparse.SUPPRESS if hidden else text,
    )


def exit_with_parent(args: argparse.Namespace, number: signal.Signals = signal.SIGTERM) -> bool:
    """Do as `--exit-with-parent` says.

    The process asks the kernel itself: a parent with gRPC's threads must not fork, as it would for
    a `preexec_fn`.

    Args:
        args: With the PID of the parent, or None.
        number: Signal that the process gets when the parent ends.

    Returns:
        False where the parent has ended already.
    """
    if args.exit_with_parent is None:
        return True
    signal_on_parent_exit(number)
    there: bool = os.getppid() == args.exit_with_parent
    return there


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """Add the experiment and `--set`."""
    parser.add_argument(
        "experiment",
        metavar="EXPERIMENT.yaml",
        help="a YAML file, or the name of a shipped experiment such as cartpole-vtrace",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="a.b=c",
        help="override a key of the experiment (repeatable; the value is YAML)",
    )
