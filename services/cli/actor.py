"""`seedbed actor`: one actor as a service of its own. Imports nothing of the learner."""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import signal
import socket

from services.actor.actor import Actor
from services.actor.environments.registry import ACTORS
from services.cli.arguments import Subparsers, add_experiment
from services.common.config import load_experiment
from services.common.exit_codes import ExitCode, SeedbedError

_PR_SET_PDEATHSIG = 1


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("actor", help="run one actor alone")
    add_experiment(parser)
    parser.add_argument(
        "--learner",
        required=True,
        metavar="ADDRESS",
        help="host:port or unix:PATH of the learner",
    )
    parser.add_argument(
        "--index",
        type=int,
        help="which actor of the run this is, for its seeds (default: from the host's name, so "
        "that pods differ)",
    )
    parser.add_argument(
        "--die-with-parent",
        type=int,
        metavar="PID",
        help="end when the process that started this one, PID, ends, even by kill -9",
    )


def run(args: argparse.Namespace) -> int:
    """Play until the experiment is over or SIGTERM."""
    if args.die_with_parent is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != args.die_with_parent:  # it ended before the request
            return 0
    index = args.index
    if index is None:
        digest = hashlib.sha256(socket.gethostname().encode()).digest()
        index = int.from_bytes(digest[:4], "little") % ACTORS
    if not 0 <= index < ACTORS:
        raise SeedbedError(ExitCode.USAGE, f"--index {index}: it takes 0 to {ACTORS - 1}")
    experiment = load_experiment(args.experiment, args.set)
    Actor(experiment, args.learner, index).run()
    return 0
