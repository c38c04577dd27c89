"""Run the learner of an experiment, which actors connect to.

With --linger it keeps answering when the experiment has finished, because Kubernetes restarts a
container that exits: it tells actors, and serves metrics and status. One of several learners
listens for its peers at the port of gossip.addresses[R].
"""

import argparse

from seedbed.cli.arguments import (
    add_credentials,
    add_experiment,
    add_parent,
    credentials_of,
    exit_with_parent,
)
from seedbed.cli.hosts import add_host, host_of
from seedbed.cli.output import add_json, print_result
from seedbed.cli.train import add_run_directory, open_run, start_probe, warn_of_settings
from seedbed.config import load_experiment
from seedbed.launch.early_checks import check_address, check_disk
from seedbed.launch.run_end import check_frames, ending
from seedbed.launch.run_header import header
from seedbed.rpc.credentials import check_exposure
from seedbed.runs.upload import check_uploaded
from seedbed.runtime.signals import RUN_STOPS, exit_at_once_on_signals, on_stop_signals
from seedbed.runtime.terminal import print_lines
from seedbed.runtime.tokens import Role

DEFAULT_LISTEN = "127.0.0.1:8470"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `learner EXPERIMENT`."""
    add_experiment(parser)
    add = parser.add_argument
    add(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="address for actors, host:port or unix:PATH (repeatable; default: 127.0.0.1:8470)",
    )
    add("--linger", action="store_true", help="serve on after the experiment's end, until SIGTERM")
    add("--rank", type=int, default=0, metavar="R", help="rank among gossip.replicas, from 0")
    add_host(parser)
    add_parent(parser)
    add_credentials(parser, listens=True)
    add_run_directory(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int | None:
    """Serve until a stop condition or SIGTERM."""
    exit_at_once_on_signals()
    exit_with_parent(args)
    experiment = load_experiment(args.experiment, args.set)
    host = host_of(args, experiment)
    if host is not None and args.exit_with_parent is None:
        from seedbed.launch.hosts import run_host

        return run_host(args.argv, host, experiment.learner.hosts)
    with open_run(args, experiment, host or 0) as directory:
        experiment = directory.experiment
        print_lines(header(experiment, directory))
        warn_of_settings(experiment)
        probe = start_probe(experiment, directory)
        from seedbed.services.learner.learner import Learner

        credentials = credentials_of(args, Role.LEARNER)
        listen, *also_listen = args.listen or [DEFAULT_LISTEN]
        check_disk(directory)
        for address in (listen, *also_listen):
            check_address(address)
            check_exposure(address, credentials, "--listen")
        for own in experiment.gossip.addresses[args.rank :][:1]:
            check_exposure(own, credentials.of_rank(args.rank), "gossip.addresses")
        learner = Learner(
            experiment,
            directory,
            listen,
            credentials=credentials,
            rank=args.rank,
            host=host or 0,
            also_listen=also_listen,
        )
        on_stop_signals(lambda name: learner.stop(f"signal {name}"), notice=RUN_STOPS)
        learner.profiler.profile_on_signal()
        summary = learner.summary_if_finished()
        if summary is None:
            print_lines(f"seedbed: listening on {learner.start(probe)}")
            summary = learner.run()
        print_lines(ending(summary, directory))
        print_result(args, summary)
        if args.linger:
            learner.serve_until_stopped()
        check_frames(summary)
        check_uploaded(directory.upload, summary)
    return None
