"""Deploy and compare the 57 games of the Atari benchmark.

`seedbed sweep atari57` makes their set and trains it here. `deploy` installs a release for each run
of a set; `table` prints Table 10 of the SEED paper with the set's scores beside.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from seedbed.cli.arguments import positive
from seedbed.cli.deploy import add_release_options, install_release
from seedbed.cli.output import emit
from seedbed.cli.suite_table import page, table
from seedbed.deploy.programs import run as call
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.terminal import print_lines
from seedbed.sets.folder import Member, read_members


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `suite deploy` and `suite table`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    text = "install a release for each run of a set, and follow none of them"
    add = (part := actions.add_parser("deploy", help=text, description=text)).add_argument
    _add_folder(add)
    text = "releases whose learner is up at once; the same command installs the next ones"
    add("--max", type=positive, metavar="N", help=text)
    add_release_options(part)

    text = "print Table 10 of the SEED paper with the set's scores, and its aggregates"
    add = (part := actions.add_parser("table", help=text, description=text)).add_argument
    _add_folder(add)
    add("--json", action="store_true", help="print JSON instead of the table")


def run(args: argparse.Namespace) -> None:
    """Do one of the two.

    Raises:
        SeedbedError: CONFIG or RUN_DIRECTORY, an experiment or the folder is wrong; DEPLOY, a
            program failed.
    """
    actions = {"deploy": _deploy, "table": _table}
    actions[args.action](args)


def _deploy(args: argparse.Namespace) -> None:
    members = read_members(args.directory)
    live = _live_learners(args, members) if args.max and not args.dry_run else {}
    free = len(members) if args.max is None else args.max - sum(map(bool, live.values()))
    for member in members:
        if member.name in live:
            print_lines(f"{member.name}: {'up' if live[member.name] else 'finished or paused'}")
            continue
        if free <= 0:
            text = f"set: {args.max} at once (--max); the same command installs the next ones"
            print_lines(text)
            return
        free -= 1
        one = copy(args)
        one.experiment, one.release = str(member.file), None
        install_release(one)


def _live_learners(args: argparse.Namespace, members: Sequence[Member]) -> dict[str, int]:
    """Return the number of learners of each release of the set that is installed.

    Raises:
        SeedbedError: CONFIG, its learners have several hosts; DEPLOY, `kubectl` failed.
    """
    if any(member.experiment.learner.hosts > 1 for member in members):
        raise ConfigError(
            "--max counts learners of one host (StatefulSets), and learner.hosts is above 1: leave "
            "--max out and name a queue of Kueue, --set pod.queueName=QUEUE"
        )
    label = "app.kubernetes.io/"
    kubectl = ("kubectl", f"--namespace={args.namespace}", "get", "statefulsets", "-o=json")
    found = json.loads(call(*kubectl, f"-l={label}component=learner"))["items"]
    learners = {
        item["metadata"]["labels"][f"{label}instance"]: int(item["spec"]["replicas"])
        for item in found
    }
    names = {member.name for member in members}
    return {name: replicas for name, replicas in learners.items() if name in names}


def _table(args: argparse.Namespace) -> None:
    result = table(read_members(args.directory))
    if args.json:
        emit(json.dumps(result, indent=1, ensure_ascii=False))
        return
    emit(page(result))


def _add_folder(add: Callable[..., Any]) -> None:
    add("directory", metavar="DIR", type=Path, help="folder of the set")
