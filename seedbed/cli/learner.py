"""`seedbed learner`: the learner as a service of its own."""

from __future__ import annotations

import argparse
import json
import sys

from seedbed.cli.arguments import Subparsers, add_experiment, add_tls, tls_of
from seedbed.cli.train import add_run_directory, open_run
from seedbed.config import load_experiment
from seedbed.runtime.signals import exit_on_sigterm, on_stop_signals


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("learner", help="run the learner alone")
    add_experiment(parser)
    parser.add_argument(
        "--listen",
        default="0.0.0.0:8470",
        metavar="ADDRESS",
        help="host:port or unix:PATH that actors connect to (default %(default)s)",
    )
    parser.add_argument(
        "--linger",
        action="store_true",
        help="when the experiment is over, stay: say so to actors, serve metrics and status, and "
        "end on SIGTERM (in a cluster, whoever ends by himself is started again)",
    )
    parser.add_argument(
        "--rank",
        type=int,
        default=0,
        metavar="R",
        help="which one of gossip.replicas it is; it listens for the others at the port of "
        "gossip.addresses[R]",
    )
    add_tls(parser)
    add_run_directory(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until a stop condition or SIGTERM."""
    exit_on_sigterm()
    experiment = load_experiment(args.experiment, args.set)
    with open_run(args, experiment) as directory:
        from seedbed.services.learner.learner import Learner
        from seedbed.services.learner.profiling import profile_on_signal

        learner = Learner(experiment, directory, args.listen, tls=tls_of(args), rank=args.rank)
        on_stop_signals(lambda name: learner.stop(f"signal {name}"))
        profile_on_signal(learner.profiler)
        if learner.finished():
            summary = learner.repeat()
        else:
            print(f"seedbed: listening on {learner.start()}", file=sys.stderr, flush=True)
            summary = learner.run()
        print(json.dumps(summary), flush=True)
        if args.linger:
            learner.serve_until_stopped()
    return 0
