"""Arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import signal

from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.signals import signal_on_parent_exit


def add_tls(parser: argparse.ArgumentParser) -> None:
    """Add `--tls`, the folder of certificates."""
    text = "mTLS with the tls.crt, tls.key and ca.crt in this folder, on both ends"
    parser.add_argument("--tls", metavar="DIR", help=text)


def tls_of(args: argparse.Namespace) -> Tls | None:
    """Read the certificates of `--tls`; return None without it.

    Raises:
        SeedbedError: A file is missing in the folder.
    """
    return Tls(args.tls) if args.tls else None


def add_parent(parser: argparse.ArgumentParser) -> None:
    """Add `--exit-with-parent`, for processes that Seedbed starts."""
    text = "end when the parent process PID ends, even by kill -9"
    parser.add_argument("--exit-with-parent", type=int, metavar="PID", help=text)


def exit_with_parent(args: argparse.Namespace, number: signal.Signals = signal.SIGTERM) -> None:
    """Do as `--exit-with-parent` says; exit now where the parent has ended already.

    The process asks the kernel itself: a parent with gRPC's threads must not fork, as it would for
    a `preexec_fn`.

    Args:
        args: With the PID of the parent, or None.
        number: Signal that the process gets when the parent ends.
    """
    if args.exit_with_parent is not None:
        signal_on_parent_exit(number)
        if os.getppid() != args.exit_with_parent:
            raise SystemExit(ExitCode.OK)


def add_experiment(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the experiment and `--set`.

    Args:
        parser: The command's parser.
        nargs: `"?"` where the command does without an experiment, too.
    """
    parser.add_argument(
        "experiment",
        metavar="EXPERIMENT.yaml",
        nargs=nargs,
        help="a YAML file, or the name of a shipped experiment such as cartpole-vtrace",
    )
    add_set(parser)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add `--set`."""
    text = "override a key of the experiment (repeatable; the value is YAML)"
    parser.add_argument("--set", action="append", default=[], metavar="a.b=c", help=text)
