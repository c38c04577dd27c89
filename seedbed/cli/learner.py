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
    """Declare `learner EXPERIMENT`."""
    parser = subparsers.add_parser("learner", help="run the learner alone")
    add_experiment(parser)
    parser.add_argument(
        "--listen",
        default="0.0.0.0:8470",
        metavar="ADDRESS",
        help="address for actors, host:port or unix:PATH (default: %(default)s)",
    )
    parser.add_argument(
        "--linger",
        action="store_true",
        help="keep running after the experiment has finished: tell actors, serve metrics and "
        "status, exit on SIGTERM (Kubernetes restarts a container that exits)",
    )
    parser.add_argument(
        "--rank",
        type=int,
        default=0,
        metavar="R",
        help="rank of this learner among gossip.replicas, from 0; it listens for peers at the port "
        "of gossip.addresses[R]",
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
        if learner.check_already_finished():
            summary = learner.load_or_complete_summary()
        else:
            print(f"seedbed: listening on {learner.start()}", file=sys.stderr, flush=True)
            summary = learner.run()
        print(json.dumps(summary), flush=True)
        if args.linger:
            learner.serve_until_stopped()
    return 0
