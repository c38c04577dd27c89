"""List the runs below a folder, and releases on a cluster: state, progress, score, time, cost.

Without DIR, runs/ and the releases of a namespace, where kubectl has a cluster.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from seedbed.cli.arguments import add_namespace
from seedbed.cli.output import emit
from seedbed.cli.status import read_file
from seedbed.cli.status_page import state_of
from seedbed.deploy.rows import has_cluster, rows_of
from seedbed.runs.found import runs_below
from seedbed.runs.layout import learner_directories
from seedbed.runs.standing import UNKNOWN, standing_of
from seedbed.runs.totals import sum_totals
from seedbed.runtime.exit_codes import RunDirectoryError, SeedbedError
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

_FOLDER = "runs"
_HEAD = ("run", "state", "frames", "done", "return", "evaluation", "time", "to go", "cost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `list [DIR]`."""
    text = f"folder of runs, or a run directory (default: {_FOLDER}, and the releases)"
    add = parser.add_argument
    add("folder", metavar="DIR", nargs="?", type=Path, help=text)
    add_namespace(parser)
    text = "releases of all namespaces"
    add("--all-namespaces", "-A", action="store_true", help=text)
    add("--json", action="store_true", help="print JSON instead of the table")


def run(args: argparse.Namespace) -> None:
    """Print the table, or JSON, to stdout.

    Raises:
        SeedbedError: RUN_DIRECTORY: no run is there, and no release. DEPLOY: no cluster answers
            that was asked for.
    """
    named = args.all_namespaces or args.namespace is not None
    releases: list[dict[str, Any]] = []
    if named or (args.folder is None and has_cluster()):
        try:
            releases = rows_of("" if args.all_namespaces else args.namespace or "default")
        except SeedbedError as error:
            if named:
                raise
            print_lines(f"no release is listed: {error}", "WARNING")
    folder = args.folder or Path(_FOLDER)
    needs_runs = args.folder is not None or not (named or releases)
    runs = runs_below(folder) if needs_runs or folder.is_dir() else []
    _print([row(path, folder) for path in runs], releases, args.json)


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
