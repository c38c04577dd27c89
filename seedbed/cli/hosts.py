"""Number of a host of a learner: an option, or what Kubernetes sets."""

import argparse
import os

from seedbed.config import Experiment
from seedbed.runtime.exit_codes import ConfigError

# The second one is set in the pods of an indexed Job.
VARIABLES = ("SEEDBED_HOST", "JOB_COMPLETION_INDEX")


def add_host(parser: argparse.ArgumentParser) -> None:
    """Add `--host`."""
    text = f"number of this host among learner.hosts, from 0 (default: {' or '.join(VARIABLES)})"
    parser.add_argument("--host", type=int, metavar="H", help=text)


def host_of(args: argparse.Namespace, experiment: Experiment) -> int | None:
    """Return the number of this host, or None of a learner of one host.

    Args:
        args: of a parser with `add_host`.
        experiment: the experiment.

    Raises:
        SeedbedError: CONFIG: no number is given, or one that is out of range.
    """
    hosts = experiment.learner.hosts
    given = next((os.environ[name] for name in VARIABLES if os.environ.get(name)), None)
    text = given if args.host is None else str(args.host)
    if hosts == 1:
        if args.host:
            raise ConfigError(f"--host {args.host}: learner.hosts is 1, so the one host is 0")
        return None
    if not experiment.learner.coordinator:
        raise ConfigError(
            f"learner.hosts is {hosts} and learner.coordinator is empty: give all hosts the "
            "host:port at which host 0 is reached by the others"
        )
    if text is None:
        raise ConfigError(
            f"learner.hosts is {hosts}: give each its number, --host 0 to {hosts - 1}"
        )
    if not text.isdigit() or int(text) >= hosts:
        raise ConfigError(
            f"host {text}: learner.hosts is {hosts}, so the hosts are 0 to {hosts - 1}"
        )
    return int(text)
