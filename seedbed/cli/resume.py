"""Resume what `seedbed pause` has paused: a release, a set of runs on a cluster, or runs of it.

A release comes back whatever has paused it, but for a value of its chart. Of a set exactly what
`pause` did is undone: a run that its meter or another person has paused stays so; with its name and
--force it resumes, too.
"""

import argparse

from seedbed.cli.arguments import add_namespace
from seedbed.deploy.pauses import resume
from seedbed.deploy.set_releases import ClusterSet, find, is_on_cluster
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.terminal import print_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `resume NAME [RUN]`."""
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the release, or of the set")
    add("runs", metavar="RUN", nargs="*", help="names of runs of the set (default: all)")
    text = "resume these runs even if their meter, or another person, has paused them"
    add("--force", action="store_true", help=text)
    add_namespace(parser)


def run(args: argparse.Namespace) -> None:
    """Resume, and name what stays paused, and why.

    Raises:
        SeedbedError: RUN_DIRECTORY, the name is a path; USAGE, it is that of two things, or
            `--force` is without a run; DEPLOY, there is none, or it is over.
    """
    name = args.name
    if not is_on_cluster(name, args.namespace):
        raise RunDirectoryError(
            f"{name} is a path of this machine: `seedbed train {name}` resumes a run, and `seedbed "
            f"sweep {name} --retry stopped` the runs of a set"
        )
    found = find(name, args.namespace or "default")
    if args.force and not args.runs and isinstance(found, ClusterSet):
        raise SeedbedError(
            ExitCode.USAGE, f"--force needs the names of runs: seedbed resume {name} RUN --force"
        )
    resume(found, args.runs, args.force, print_lines)
