"""Print the logs of a release's pods, or of a set's controller, or of one run of the set.

Where a finished or paused release has no such pod, its learner's log is in its volume: `seedbed
fetch` brings it.
"""

import argparse
import sys

from seedbed.cli.arguments import add_namespace
from seedbed.deploy.releases import Lines, print_logs, print_pods
from seedbed.deploy.set_releases import ClusterSet, find, is_on_cluster
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError

_ROLES = ("learner", "actor", "replay", "cost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `logs NAME [RUN]`."""
    add = parser.add_argument
    add("release", metavar="NAME", help="name of the release, or of the set")
    add("run", metavar="RUN", nargs="?", help="run of the set (default: the set's controller)")
    text = f"whose logs: learner, actor, replay or cost (default: {_ROLES[0]})"
    add("--role", choices=_ROLES, metavar="ROLE", help=text)
    add("--follow", "-f", action="store_true", help="go on with new lines until Ctrl-C")
    add("--tail", type=int, default=-1, metavar="N", help="last N lines of each (default: all)")
    add_namespace(parser)


def run(args: argparse.Namespace) -> None:
    """Print the lines to stdout.

    Raises:
        SeedbedError: USAGE, the name is that of two things, or a run is named too much or too
            little; RUN_DIRECTORY, it is a path; DEPLOY, there is no such release, or no such pod.
    """
    name = args.release
    if not is_on_cluster(name, args.namespace):
        raise RunDirectoryError(f"{name} is a path of this machine: its logs are in {name}/logs")
    found = find(name, args.namespace or "default")
    lines = Lines(args.follow, args.tail)
    sys.stdout.flush()
    if isinstance(found, ClusterSet):
        _print_of_set(found, args, lines)
    elif args.run is not None:
        raise SeedbedError(ExitCode.USAGE, f"{name} is a release, which has no runs to name")
    else:
        print_logs(found, args.role or _ROLES[0], lines)


def _print_of_set(one: ClusterSet, args: argparse.Namespace, lines: Lines) -> None:
    if args.run is None:
        if args.role is not None:
            raise SeedbedError(
                ExitCode.USAGE,
                f"--role is of a run: seedbed logs {one.name} RUN --role {args.role}; its runs: "
                f"seedbed list {one.name} -n {one.namespace}",
            )
        if not print_pods(one.namespace, one.controllers, lines):
            raise SeedbedError(
                ExitCode.DEPLOY,
                f"the set {one.name} has no pod of its controller: `kubectl -n {one.namespace} "
                f"describe deployment {one.name}-set` tells why",
            )
        return
    entry = one.entry(args.run)
    if (release := one.awake.get(args.run)) is None:
        why = f": {entry['reason']}" if entry.get("reason") else ""
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"{args.run} has no pod: it is {entry['state']}{why}; `seedbed fetch {one.name} DIR -n "
            f"{one.namespace}` brings the log of one that has trained",
        )
    print_logs(release, args.role or _ROLES[0], lines)
