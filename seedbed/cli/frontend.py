"""Relay actor streams to the learner of this machine.

The learner starts its own front ends (learner.inference.frontends) by this command.
"""

import argparse

from seedbed.cli.arguments import add_credentials, add_parent, credentials_of, exit_with_parent
from seedbed.runtime.signals import exit_on_sigterm
from seedbed.runtime.terminal import print_lines
from seedbed.runtime.tokens import Role


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `frontend`."""
    add = parser.add_argument
    add("--learner", required=True, metavar="PATH", help="socket of the learner for front ends")
    add("--number", type=int, default=0, metavar="N", help="number of the front end, from 0")
    add("--listen", required=True, metavar="ADDRESS", help="address for actors, host:port")
    add_credentials(parser, listens=True)
    add_parent(parser)


def run(args: argparse.Namespace) -> int | None:
    """Serve until SIGTERM."""
    exit_on_sigterm()
    exit_with_parent(args)
    from seedbed.services.frontend.frontend import run_frontend

    print_lines(f"seedbed: front end {args.number} at {args.listen}")
    run_frontend(args.learner, args.number, args.listen, credentials_of(args, Role.LEARNER))
    return None
