"""Print the logs of a release's pods: of its learners, or of another role.

Where a finished or paused release has no such pod, its learner's log is in its volume: `seedbed
fetch` brings it.
"""

import argparse
import sys

from seedbed.cli.arguments import add_namespace
from seedbed.deploy.releases import find_release, print_logs
from seedbed.deploy.set_releases import is_on_cluster
from seedbed.runtime.exit_codes import RunDirectoryError

_ROLES = ("learner", "actor", "replay", "cost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `logs RELEASE`."""
    add = parser.add_argument
    add("release", metavar="RELEASE", help="name of the release")
    text = "whose logs: learner, actor, replay or cost (default: %(default)s)"
    add("--role", choices=_ROLES, default="learner", metavar="ROLE", help=text)
    add("--follow", "-f", action="store_true", help="go on with new lines until Ctrl-C")
    add("--tail", type=int, default=-1, metavar="N", help="last N lines of each (default: all)")
    add_namespace(parser)


def run(args: argparse.Namespace) -> None:
    """Print the lines to stdout.

    Raises:
        SeedbedError: USAGE, the name is also that of a folder; RUN_DIRECTORY, it is a path; DEPLOY,
            there is no such release, or no such pod.
    """
    name = args.release
    if not is_on_cluster(name, args.namespace):
        raise RunDirectoryError(f"{name} is a path of this machine: its logs are in {name}/logs")
    release = find_release(name, args.namespace or "default")
    sys.stdout.flush()
    print_logs(release, args.role, args.follow, args.tail)
