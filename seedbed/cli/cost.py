"""Price the requests of a release's pods by a dated table, and serve /metrics and /status.

Actors, learner and replay shards are scaled to zero when the learners say that the experiment is
over, or when the budget is spent.
"""

import argparse
import tempfile
import threading
from functools import partial
from pathlib import Path

import yaml
from pydantic import ValidationError

from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.http import MetricsServer
from seedbed.runtime.signals import exit_on_sigterm, on_stop_signals
from seedbed.runtime.tokens import TOKEN_FILE_VARIABLE, Role, Tokens, token_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command."""
    add = parser.add_argument
    add("--release", required=True, help="the Helm release")
    add("--namespace", required=True, help="namespace of the release")
    text = "/status of a learner; repeat the option for each of several learners"
    add("--learner", default=[], metavar="URL", action="append", help=text)
    add("--settings", type=Path, metavar="FILE.yaml", help="cost values of the chart")
    add("--budget", type=float, default=0.0, metavar="DOLLARS", help="stop.dollars (default: none)")
    text = "stop.idle_s: seconds without a frame that pause the release (default: never)"
    add("--idle-s", type=float, default=0.0, metavar="SECONDS", help=text)
    text = "stop.pending_s: seconds without a learner that take the actors to zero (default: never)"
    add("--pending-s", type=float, default=0.0, metavar="SECONDS", help=text)
    text = "remove the meter and the last resort so long after the end (default: never)"
    add("--ttl-s", type=float, default=0.0, metavar="SECONDS", help=text)
    add("--paused", action="store_true", help="hold the release at zero")
    add("--run", default="", metavar="NAME", help="name of the run, which has a bill of its own")
    text = "stop conditions in any form: with others a finished experiment resumes"
    add("--goal", default="", metavar="TEXT", help=text)
    text = "set of runs that the release belongs to: its controller reads the rows before the end"
    add("--set", default="", metavar="NAME", help=text)
    add("--replay", type=int, default=0, metavar="SHARDS", help="number of replay shards")
    text = "number of hosts of a learner that has several"
    add("--hosts", type=int, default=1, metavar="N", help=text)
    text = "number of learners of several hosts"
    add("--learners", type=int, default=1, metavar="N", help=text)
    add("--queued", action="store_true", help="Kueue admits the learners or the shards")
    text = "do what a dead meter leaves undone: take the release to zero if it is over; then end"
    add("--last-resort", action="store_true", help=text)
    text = f"tokens, one `ROLE SECRET` a line (default: {TOKEN_FILE_VARIABLE} of the environment)"
    add("--token-file", metavar="FILE", help=text)
    text = "Secret with the tokens, which the meter makes; in place of --token-file"
    add("--auth-secret", default="", metavar="NAME", help=text)
    text = "Secret that is to go with the release (repeatable)"
    add("--owns", action="append", default=[], metavar="NAME", help=text)
    add("--insecure", action="store_true", help="serve /status to every client, without tokens")
    add("--port", type=int, default=9092, help="port of HTTP (default %(default)s)")


def run(args: argparse.Namespace) -> None:
    """Run the meter until SIGTERM."""
    exit_on_sigterm()
    from seedbed.services.cost.cluster import Cluster
    from seedbed.services.cost.job_sets import JobSets
    from seedbed.services.cost.last_resort import hold_at_zero
    from seedbed.services.cost.learners import read_learner
    from seedbed.services.cost.meter import CostMeter, Goal
    from seedbed.services.cost.prices import PriceList, Settings
    from seedbed.services.cost.token_secret import TokenSecret

    several = args.hosts > 1
    hosts = JobSets(args.hosts, args.learners) if several else None
    if args.last_resort:
        # Without prices and learners, which may be what keeps the meter from its work.
        cluster = Cluster(
            args.release, args.namespace, False, bool(args.replay), hosts, args.queued
        )
        hold_at_zero(cluster, args.budget, args.goal)
        return
    if not args.learner or args.settings is None:
        raise ConfigError("--learner and --settings are missing: only --last-resort needs neither")
    try:
        settings = Settings.model_validate(yaml.safe_load(args.settings.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"cannot read {args.settings}: {error}") from error
    prices = PriceList(settings)
    cluster = Cluster(
        args.release, args.namespace, settings.readNodes, bool(args.replay), hosts, args.queued
    )
    file = token_file(args.token_file)
    secret = None
    if args.auth_secret or args.owns:
        own = Path(tempfile.mkdtemp(prefix="seedbed-")) / "tokens"
        owner = f"{args.release}-experiment"
        secret = TokenSecret(
            owner, args.namespace, args.auth_secret, len(args.learner), args.owns, own
        )
    if secret is not None and args.auth_secret:
        secret.wait()
        file = str(own)
    tokens = Tokens(file) if file else None
    if tokens is not None:
        tokens.secret(Role.OBSERVER)  # missing: it is said at the start
    if tokens is not None and args.insecure:
        raise ConfigError("--insecure contradicts --token-file: leave one of them out")
    learners = [partial(read_learner, url, tokens) for url in args.learner]
    goal = Goal(
        args.budget, args.idle_s, args.pending_s, args.run, args.goal, args.paused, args.replay,
        args.ttl_s, args.set,
    )  # fmt: skip
    meter = CostMeter(cluster, prices, learners, goal, secret.keep if secret else None)
    stopping = threading.Event()
    http = MetricsServer(
        args.port, meter.registry, status=meter.status, tokens=tokens, insecure=args.insecure
    )
    on_stop_signals(lambda _: stopping.set())
    meter.run(stopping)
    http.close()
