"""`seedbed actor`: one actor as a process of its own. Imports nothing of the learner."""

from __future__ import annotations

import argparse
import hashlib
import socket

from seedbed.cli.arguments import (
    Subparsers,
    add_experiment,
    add_parent,
    add_tls,
    exit_with_parent,
    tls_of,
)
from seedbed.config import load_experiment
from seedbed.envs.registry import ACTORS
from seedbed.runtime.allocator import keep_large_blocks
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.signals import exit_on_sigterm


def add_parser(subparsers: Subparsers) -> None:
    """Add the command's parser."""
    parser = subparsers.add_parser("actor", help="run one actor alone")
    add_experiment(parser)
    parser.add_argument(
        "--learner",
        required=True,
        metavar="ADDRESS[,ADDRESS...]",
        help="host:port or unix:PATH of the learner; of several learners, each group connects to "
        "the least loaded one with free slots",
    )
    add_tls(parser)
    parser.add_argument(
        "--index",
        type=int,
        help="index of the actor in the run, for its seeds (default: from the host's name, so "
        "that pods differ)",
    )
    add_parent(parser)


def run(args: argparse.Namespace) -> int:
    """Run until the experiment is over or SIGTERM.

    Raises:
        SeedbedError: USAGE, or as `Actor.run`.
    """
    from seedbed.services.actor.actor import Actor

    exit_on_sigterm()
    keep_large_blocks()
    if not exit_with_parent(args):
        return ExitCode.OK
    index = args.index
    if index is None:
        digest = hashlib.sha256(socket.gethostname().encode()).digest()
        index = int.from_bytes(digest[:4], "little") % ACTORS
    if not 0 <= index < ACTORS:
        raise SeedbedError(ExitCode.USAGE, f"--index {index} is out of range 0 to {ACTORS - 1}")
    experiment = load_experiment(args.experiment, args.set)
    Actor(experiment, args.learner, index, tls_of(args)).run()
    return 0
