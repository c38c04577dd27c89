"""List the runs below a folder, and what is on a cluster: state, progress, score, time, cost.

Without DIR, runs/ and the releases and sets of a namespace, where kubectl has a cluster. A set is
one row; its name, where no folder has it, lists its runs.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from seedbed.cli.arguments import add_namespace
from seedbed.cli.output import emit
from seedbed.cli.status import read_file
from seedbed.cli.status_page import state_of
from seedbed.deploy.programs import has_namespace
from seedbed.deploy.releases import has_cluster
from seedbed.deploy.rows import row_of_release, rows_of, rows_of_runs
from seedbed.deploy.set_releases import (
    ClusterSet,
    LeftVolumes,
    everything_in,
    find,
    left_volumes,
)
from seedbed.deploy.set_standing import sentences, standing
from seedbed.runs.found import runs_below
from seedbed.runs.layout import learner_directories
from seedbed.runs.standing import UNKNOWN, standing_of
from seedbed.runs.totals import sum_totals
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.files import read_object
from seedbed.runtime.formats import (
    NOTHING,
    columns,
    duration,
    money,
    percent,
    si_number,
    significant,
)
from seedbed.runtime.terminal import print_lines
from seedbed.runtime.text import counted

_FOLDER = "runs"
_HEAD = ("run", "state", "frames", "done", "return", "evaluation", "time", "to go", "cost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `list [DIR|SET]`."""
    text = f"folder of runs, run directory, or set (default: {_FOLDER}, and what is on a cluster)"
    add = parser.add_argument
    add("folder", metavar="DIR|SET", nargs="?", help=text)
    add_namespace(parser)
    text = "releases and sets of all namespaces"
    add("--all-namespaces", "-A", action="store_true", help=text)
    add("--json", action="store_true", help="print JSON instead of the table")


def run(args: argparse.Namespace) -> None:
    """Print the table, or JSON, to stdout.

    Raises:
        SeedbedError: RUN_DIRECTORY: no run is there, and no cluster has told what it has. DEPLOY:
            no cluster answers that was asked for, or it has no such namespace.
    """
    named = args.all_namespaces or args.namespace is not None
    space = "" if args.all_namespaces else args.namespace or "default"
    if _is_name(args.folder) and space and (named or has_cluster()):
        _print_found(args.folder, space, named, args.json)
        return
    releases: list[dict[str, Any]] = []
    is_told = False
    if named or (args.folder is None and has_cluster()):
        try:
            found = everything_in(space)
            releases, is_told = rows_of(found), True
            for one in found.sets:
                _tell_standing(one)
            _tell_what_is_left(left_volumes(space, found))
        except SeedbedError as error:
            if named:
                raise
            print_lines(f"no release is listed: {error}", "WARNING")
    folder = Path(args.folder or _FOLDER)
    try:
        runs = runs_below(folder)
    except RunDirectoryError:
        if args.folder is not None or not is_told:
            raise
        runs = []
        if not releases:
            _tell_of_nothing(space, folder)
    _print([row(path, folder) for path in runs], releases, args.json)


def _is_name(word: str | None) -> bool:
    """Return whether a word can be no folder of this machine, but a name on a cluster."""
    return word is not None and "/" not in word and not Path(word).exists()


def _print_found(name: str, namespace: str, is_named: bool, as_json: bool) -> None:
    """Print the runs of a set, or the row of a release."""
    try:
        found = find(name, namespace)
    except SeedbedError as error:
        if is_named:
            raise
        raise RunDirectoryError(f"there is no folder {name} here, and {error}") from error
    if isinstance(found, ClusterSet):
        _tell_standing(found)
        _print(rows_of_runs(found), [], as_json)
    else:
        _print([], [row_of_release(found)], as_json)


def _tell_of_nothing(namespace: str, folder: Path) -> None:
    """Say that neither a cluster nor this machine has anything to list.

    Raises:
        SeedbedError: DEPLOY, there is no such namespace.
    """
    if namespace and not has_namespace(namespace):
        raise SeedbedError(
            ExitCode.DEPLOY,
            f"there is no namespace {namespace}: `kubectl get namespaces` names those that are "
            "there; -n NAMESPACE chooses one, -A all",
        )
    where = f"namespace {namespace}" if namespace else "any namespace"
    what = "run below" if folder.is_dir() else "folder"
    print_lines(f"no releases in {where}, and no {what} {folder}/ here")


def _tell_standing(one: ClusterSet) -> None:
    """Say why a set with runs to go does not go on, in the words of `seedbed status`."""
    if not one.is_over:
        for sentence in sentences(standing(one)):
            print_lines(f"{one.namespace}/{one.name}: {sentence}")


def _tell_what_is_left(left: list[LeftVolumes]) -> None:
    for one in left:
        parts = [f"{counted(len(one.claims), 'volume')} of its runs"] * bool(one.claims)
        parts += [f"that of its rows ({one.folder})"] * bool(one.folder)
        print_lines(
            f"{one.namespace}/{one.name} is gone, and {' and '.join(parts)} are left, which cost "
            f"until they are deleted: {one.remove}",
            "WARNING",
        )


def print_runs(folder: Path, as_json: bool) -> None:
    """Print the runs at and below a folder.

    Args:
        folder: The folder.
        as_json: Print JSON instead of the table.

    Raises:
        SeedbedError: RUN_DIRECTORY: no run is there.
    """
    _print([row(path, folder) for path in runs_below(folder)], [], as_json)


def _print(runs: list[dict[str, Any]], releases: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        emit(json.dumps([*runs, *releases], indent=1, ensure_ascii=False))
        return
    what, *names = _HEAD
    lines = [(what, *names), *(_cells(each) for each in runs)] if runs else []
    if releases or not runs:
        lines += [("release", *(names if not runs else [""] * len(names)))]
    lines += [_cells(each) for each in releases]
    emit(columns(lines, "<<>>>>>>>"))


def row(path: Path, folder: Path) -> dict[str, Any]:
    """Return what is shown of a run: null where it is not known.

    Args:
        path: Run directory.
        folder: Folder to which the run's name is relative.
    """
    name = str(path.relative_to(folder)) if path != folder else path.name
    begun = {"run": name, "path": str(path), "state": "begun", **UNKNOWN, "dollars": None}
    try:
        statuses = [read_file(each) for each in learner_directories(path) or [path]]
    except RunDirectoryError:
        return begun
    status = statuses[0]
    evaluation = status["evaluation"] or {}
    if len(statuses) > 1:  # of their average
        evaluation = read_object(path / "summary.json").get("evaluation") or {}
    totals = sum_totals(path, statuses)
    standing = standing_of(statuses, int(totals.frames), evaluation)
    if status["source"]["alive"] is False:
        standing["seconds_left"] = None
    return {**begun, "state": state_of(status), **standing, "dollars": totals.dollars}


def _cells(of: dict[str, Any]) -> tuple[str, ...]:
    return (
        of["run"], of["state"], si_number(of["env_frames"]), percent(of["done"]),
        significant(of["mean_return"]), significant(of["evaluation_mean"]), duration(of["seconds"]),
        duration(of["seconds_left"]) if of["seconds_left"] is not None else NOTHING,
        money(of["dollars"]),
    )  # fmt: skip
