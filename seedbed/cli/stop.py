"""Stop a run, a set of runs, or a release: each saves a last checkpoint.

A name is a path where it has a slash or exists; with -n it is a release or a set on a cluster. That
is paused, as by `seedbed pause`. A whole set of this machine goes on by the same command later. One
run of it, named by its name, stays stopped: `seedbed sweep DIR --retry stopped` starts it again.
"""

import argparse
import os
import signal
from pathlib import Path

from seedbed.cli.arguments import add_namespace
from seedbed.cli.status import read_file
from seedbed.deploy.pauses import pause
from seedbed.deploy.set_releases import find, is_on_cluster
from seedbed.runs.found import is_run
from seedbed.runtime.exit_codes import RunDirectoryError, SeedbedError
from seedbed.runtime.locks import holder_of
from seedbed.runtime.paths import shown
from seedbed.runtime.terminal import print_lines
from seedbed.sets.folder import Member, is_folder_of_runs, lock_file, read_members
from seedbed.sets.stopped import mark_stopped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `stop DIR|NAME [RUN]`."""
    add = parser.add_argument
    text = "run directory, folder of a set, or name of a release or a set on a cluster"
    add("directory", metavar="DIR|NAME", help=text)
    add("runs", metavar="RUN", nargs="*", help="names of runs of the set (default: all)")
    add_namespace(parser)


def run(args: argparse.Namespace) -> None:
    """Send SIGTERM to the processes, once each, and mark the runs of a set that are named.

    Raises:
        SeedbedError: RUN_DIRECTORY: there is no such run, or its process is on another host; USAGE,
            the name is that of a folder and of a release; DEPLOY, the cluster does not pause it.
    """
    if is_on_cluster(args.directory, args.namespace):
        _pause(args)
        return
    directory = Path(args.directory)
    if not is_folder_of_runs(directory):
        if args.runs or not is_run(directory):
            raise RunDirectoryError(f"{directory} is neither a run nor the folder of a set")
        _stop_run(directory)
        return
    members = {member.name: member for member in read_members(directory)}
    for name in args.runs:
        if name not in members:
            raise RunDirectoryError(
                f"{directory} has no run {name}: `seedbed status {directory}` names them"
            )
        mark_stopped(members[name])
        _stop_run(members[name].run)
    if not args.runs:
        _stop_set(directory, list(members.values()))


def _pause(args: argparse.Namespace) -> None:
    name = args.directory
    try:
        found = find(name, args.namespace or "default")
    except SeedbedError as error:
        if args.namespace is not None:
            raise
        raise RunDirectoryError(f"there is no folder {name} here, and {error}") from error
    pause(found, args.runs, print_lines)


def _stop_set(folder: Path, members: list[Member]) -> None:
    driver = holder_of(lock_file(folder))
    if driver is not None:
        pid, host = driver
        _terminate(pid, host, f"{shown(folder)}, with all its runs,")
        return
    running = [member for member in members if member.has_begun and _process(member.run)]
    if not running:
        print_lines(f"{shown(folder)}: no process drives the set, and no run has one")
    for member in running:
        _stop_run(member.run)


def _process(run: Path) -> tuple[int, str] | None:
    """Return number and host of the process of a run; None where it has ended."""
    try:
        status = read_file(run)
    except RunDirectoryError:
        return None
    if status["stop_reason"] is not None or status["source"]["alive"] is False:
        return None
    return status["process"]["pid"], status["process"]["host"]


def _stop_run(run: Path) -> None:
    process = _process(run)
    if process is None:
        print_lines(f"{shown(run)}: no process trains it")
        return
    _terminate(*process, shown(run))


def _terminate(pid: int, host: str, name: str) -> None:
    if host != os.uname().nodename:
        raise RunDirectoryError(f"{name} is trained by process {pid} on {host}: stop it there")
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        print_lines(f"{name}: process {pid} has just ended")
    except PermissionError as error:
        raise RunDirectoryError(
            f"{name} is trained by process {pid} of another user: {error.strerror}"
        ) from error
    else:
        print_lines(f"{name} stops with a last checkpoint: SIGTERM sent to process {pid}")
