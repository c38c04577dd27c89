"""`seedbed cost`: the cost meter of a release on Kubernetes."""

from __future__ import annotations

import argparse
import threading
from functools import partial
from pathlib import Path

import yaml
from pydantic import ValidationError

from seedbed.cli.arguments import Subparsers
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.http import MetricsServer
from seedbed.runtime.signals import exit_on_sigterm, on_stop_signals


def add_parser(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "cost",
        help="price a release on Kubernetes, and end it when it is over",
        description="Price the requests of a release's pods by a dated table, serve /metrics and "
        "/status, and scale actors, learner and replay shards to zero when the learners say that "
        "the experiment is over, or the budget is spent.",
    )
    parser.add_argument("--release", required=True, help="the Helm release")
    parser.add_argument("--namespace", required=True, help="its namespace")
    parser.add_argument("--learner", required=True, metavar="URL", action="append",
                        help="the learner's /status; once for each of several")  # fmt: skip
    parser.add_argument("--settings", required=True, type=Path, metavar="FILE.yaml",
                        help="the chart's cost values that price")  # fmt: skip
    parser.add_argument("--budget", type=float, default=0.0, metavar="DOLLARS",
                        help="stop.dollars of the experiment (default: none)")  # fmt: skip
    parser.add_argument("--replay", action="store_true", help="the release has replay shards")
    parser.add_argument("--port", type=int, default=9092, help="of HTTP (default %(default)s)")


def run(args: argparse.Namespace) -> int:
    """Run the meter until SIGTERM."""
    exit_on_sigterm()
    from seedbed.services.cost.cluster import Cluster
    from seedbed.services.cost.meter import CostMeter, read_learner
    from seedbed.services.cost.prices import PriceList, Settings

    try:
        settings = Settings.model_validate(yaml.safe_load(args.settings.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise SeedbedError(ExitCode.CONFIG, f"cannot read {args.settings}: {error}") from error
    prices = PriceList(settings)
    cluster = Cluster(args.release, args.namespace, settings.readNodes, args.replay)
    learners = [partial(read_learner, url) for url in args.learner]
    meter = CostMeter(cluster, prices, learners, args.budget)
    stopping = threading.Event()
    http = MetricsServer(args.port, meter.registry, status=meter.status)
    on_stop_signals(lambda _: stopping.set())
    meter.run(stopping)
    http.close()
    return 0
