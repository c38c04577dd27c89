"""`seedbed learner`: the learner as a service of its own."""

from __future__ import annotations

import argparse
import json
import sys

from services.cli.arguments import Subparsers, add_experiment
from services.cli.train import add_run_directory, open_run
from services.common.config import load_experiment
from services.common.lifecycle import on_stop_signals


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
    add_run_directory(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until a stop condition or SIGTERM."""
    experiment = load_experiment(args.experiment, args.set)
    with open_run(args, experiment) as directory:
        from services.learner.learner import Learner
        from services.learner.profiling import profile_on_signal

        learner = Learner(experiment, directory, args.listen)
        if learner.finished():
            print(json.dumps(learner.run()))
            return 0
        on_stop_signals(lambda name: learner.stop(f"signal {name}"))
        profile_on_signal(learner.profiler)
        print(f"seedbed: listening on {learner.start()}", file=sys.stderr, flush=True)
        print(json.dumps(learner.run()))
    return 0
