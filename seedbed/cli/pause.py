"""Pause a release, a set of runs on a cluster, or runs of it: each saves a last checkpoint.

The meter takes the pods to zero and holds them there, over upgrades and restarts, until `seedbed
resume`. Of a paused set no other run starts. A run that waits is paused before it starts.
"""

import argparse

from seedbed.cli.arguments import add_namespace
from seedbed.deploy.pauses import pause
from seedbed.deploy.set_releases import find, is_on_cluster
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.terminal import print_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `pause NAME [RUN]`."""
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the release, or of the set")
    add("runs", metavar="RUN", nargs="*", help="names of runs of the set (default: all)")
    add_namespace(parser)


def run(args: argparse.Namespace) -> None:
    """Pause, and name the command that resumes.

    Raises:
        SeedbedError: RUN_DIRECTORY, the name is a path; USAGE, it is that of two things, or a
            release has no runs to name; DEPLOY, there is none, or nothing would pause it.
    """
    name = args.name
    if not is_on_cluster(name, args.namespace):
        raise RunDirectoryError(
            f"{name} is a path of this machine: `seedbed stop {name}` stops what runs there"
        )
    pause(find(name, args.namespace or "default"), args.runs, print_lines)
