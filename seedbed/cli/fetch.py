"""Bring the result of a release to this machine: policy, curves, evaluations and logs.

It works while the release runs, and once it is finished or paused; files that are here already are
not sent again. `seedbed status`, `plot` and `evaluate` take the folder. Of a set it brings every
run, as a folder that `seedbed sweep` and `compare` take, too.
"""

import argparse
from pathlib import Path

from seedbed.cli.arguments import add_namespace
from seedbed.deploy.fetch import fetch
from seedbed.deploy.set_fetch import fetch_set
from seedbed.deploy.set_releases import ClusterSet, find
from seedbed.runtime.terminal import print_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `fetch NAME DIR`."""
    add = parser.add_argument
    add("release", metavar="NAME", help="name of the release, or of the set")
    text = "folder for it: empty, or one that an earlier fetch has begun"
    add("directory", metavar="DIR", type=Path, help=text)
    add_namespace(parser)


def run(args: argparse.Namespace) -> None:
    """Fetch, and name the commands that take the folder.

    Raises:
        SeedbedError: RUN_DIRECTORY, the folder has something else in it; OUTPUT, it cannot be
            written; DEPLOY, there is no such release, or its volume cannot be read.
    """
    found = find(args.release, args.namespace or "default")
    if isinstance(found, ClusterSet):
        fetch_set(found, args.directory, print_lines)
        print_lines(f"next: seedbed compare {args.directory}, status and sweep take the folder too")
        return
    fetch(found, args.directory, print_lines)
    print_lines(f"next: seedbed status {args.directory}, plot and evaluate take the folder too")
