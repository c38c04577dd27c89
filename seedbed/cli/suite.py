"""Prepare, run, deploy and compare the 57 games of the Atari benchmark.

A suite is a folder: NAME.yaml for each game and seed, written by `prepare`, and the runs of these
experiments. `table` prints Table 10 of the SEED paper with the suite's scores beside.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from seedbed.cli.arguments import add_set
from seedbed.cli.deploy import add_release_options, install_release
from seedbed.cli.deploy_programs import run as call
from seedbed.cli.output import add_json, emit, print_result
from seedbed.cli.suite_experiments import describe, games_of, suite_experiments, write_suite
from seedbed.cli.suite_table import page, table
from seedbed.launch.suite import SuiteRunner, code_name
from seedbed.papers.seed_atari import BILLION_FRAMES_DOLLARS
from seedbed.runs.suite import Member, read_suite
from seedbed.runtime.exit_codes import ConfigError, ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.locks import LockHeld, release_lock, take_lock
from seedbed.runtime.paths import shown
from seedbed.runtime.signals import on_stop_signals
from seedbed.runtime.terminal import print_lines
from seedbed.runtime.text import counted

_NOTICE = "stopping each run with a last checkpoint; a second signal ends them at once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `suite prepare`, `suite run`, `suite deploy` and `suite table`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    text = "write the experiments of all games from one file, and say what they take"
    add = (part := actions.add_parser("prepare", help=text, description=text)).add_argument
    add("benchmark", choices=("atari57",), help="games of the suite")
    text = "a YAML file, or a shipped experiment such as atari-r2d2, that plays any Atari game"
    add("--experiment", required=True, metavar="EXPERIMENT.yaml", help=text)
    add("--out", required=True, type=Path, metavar="DIR", help="folder of the suite")
    text = "seeds of each game, counted from the experiment's (default: %(default)s)"
    add("--seeds", type=_positive, default=1, metavar="N", help=text)
    add("--games", metavar="A,B,...", help="names as in Table 10, such as Pong,MsPacman")
    text = "US dollars of 1e9 frames, for the estimate (default: %(default)s, of Table 11)"
    default = BILLION_FRAMES_DOLLARS
    add("--billion-frames-dollars", type=float, default=default, metavar="D", help=text)
    add_set(part)

    text = "train what is not finished; the same command resumes"
    add = (part := actions.add_parser("run", help=text, description=text)).add_argument
    _add_folder(add)
    add("--parallel", type=_positive, default=1, metavar="N", help="runs at once (default: 1)")
    add_json(part)

    text = "install a release for each experiment, and follow none of them"
    add = (part := actions.add_parser("deploy", help=text, description=text)).add_argument
    _add_folder(add)
    text = "releases whose learner is up at once; the same command installs the next ones"
    add("--max", type=_positive, metavar="N", help=text)
    add_release_options(part)

    text = "print Table 10 of the SEED paper with the suite's scores, and its aggregates"
    add = (part := actions.add_parser("table", help=text, description=text)).add_argument
    _add_folder(add)
    add("--json", action="store_true", help="print JSON instead of the table")


def run(args: argparse.Namespace) -> None:
    """Do one of the four.

    Raises:
        SeedbedError: CONFIG or RUN_DIRECTORY, an experiment or the folder is wrong; SUITE_FAILED,
            a run failed; DEPLOY, a program failed.
    """
    actions = {"prepare": _prepare, "run": _run, "deploy": _deploy, "table": _table}
    actions[args.action](args)


def _prepare(args: argparse.Namespace) -> None:
    games = games_of(args.games)
    experiments = suite_experiments(args.experiment, args.set, games, args.seeds)
    print_lines(describe(experiments, args.billion_frames_dollars))
    written = write_suite(args.out, experiments, args.experiment)
    kept = len(experiments) - written
    also = f", {kept} are there already" if kept else ""
    out = shown(args.out)
    print_lines(f"suite: {counted(written, 'file')} written to {out}{also}")
    print_lines(f"next: `seedbed suite run {out}`, or `seedbed suite deploy {out}`")


def _run(args: argparse.Namespace) -> None:
    members = read_suite(args.directory)
    runner = SuiteRunner(members, args.parallel, print_lines)
    try:
        lock = take_lock(args.directory / "suite.lock")
    except LockHeld as holder:
        raise RunDirectoryError(f"{args.directory} is in use by {holder}") from None
    except OSError as error:
        raise RunDirectoryError(f"cannot lock {args.directory}: {error}") from error
    try:
        on_stop_signals(runner.stop, notice=_NOTICE)
        runner.run()
    finally:
        release_lock(lock)
    finished = [member.name for member in members if member.is_finished]
    print_lines(f"suite: {len(finished)} of {len(members)} runs are finished")
    result = {"finished": finished, "failed": runner.failed, "runs": len(members)}
    print_result(args, result)
    if runner.failed:
        named = ", ".join(f"{name}: {code_name(code)}" for name, code in runner.failed.items())
        text = f"{len(runner.failed)} of {len(members)} runs failed: {named}"
        raise SeedbedError(ExitCode.SUITE_FAILED, text)


def _deploy(args: argparse.Namespace) -> None:
    members = read_suite(args.directory)
    live = _live_learners(args, members) if args.max and not args.dry_run else {}
    free = len(members) if args.max is None else args.max - sum(map(bool, live.values()))
    for member in members:
        if member.name in live:
            print_lines(f"{member.name}: {'up' if live[member.name] else 'finished or paused'}")
            continue
        if free <= 0:
            text = f"suite: {args.max} at once (--max); the same command installs the next ones"
            print_lines(text)
            return
        free -= 1
        one = copy(args)
        one.experiment, one.release = str(member.file), None
        install_release(one)


def _live_learners(args: argparse.Namespace, members: Sequence[Member]) -> dict[str, int]:
    """Return the number of learners of each release of the suite that is installed.

    Raises:
        SeedbedError: CONFIG, its learners have several hosts; DEPLOY, `kubectl` failed.
    """
    if any(member.experiment.learner.hosts > 1 for member in members):
        raise ConfigError(
            "--max counts learners of one host (StatefulSets), and learner.hosts is above 1: leave "
            "--max out and name a queue of Kueue, --set queueName=QUEUE"
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
    result = table(read_suite(args.directory))
    if args.json:
        emit(json.dumps(result, indent=1, ensure_ascii=False))
        return
    emit(page(result))


def _add_folder(add: Callable[..., Any]) -> None:
    add("directory", metavar="DIR", type=Path, help="folder of the suite")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value
