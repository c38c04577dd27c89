"""List the runs below a folder: state, progress, score, time and cost."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from seedbed.cli.output import emit
from seedbed.cli.status import read_file
from seedbed.cli.status_page import state_of
from seedbed.runs.found import runs_below
from seedbed.runs.layout import learner_directories
from seedbed.runs.stop import COUNTED
from seedbed.runs.totals import totals_of
from seedbed.runtime.exit_codes import RunDirectoryError
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

_HEAD = ("run", "state", "frames", "done", "return", "evaluation", "time", "to go", "cost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `list [DIR]`."""
    text = "folder of runs, or a run directory (default: runs)"
    add = parser.add_argument
    add("folder", metavar="DIR", nargs="?", type=Path, default=Path("runs"), help=text)
    add("--json", action="store_true", help="print JSON instead of the table")


def run(args: argparse.Namespace) -> None:
    """Print the table, or JSON, to stdout.

    Raises:
        SeedbedError: RUN_DIRECTORY: no run is there.
    """
    print_runs(args.folder, args.json)


def print_runs(folder: Path, as_json: bool) -> None:
    """Print the runs at and below a folder.

    Args:
        folder: The folder.
        as_json: Print JSON instead of the table.

    Raises:
        SeedbedError: RUN_DIRECTORY: no run is there.
    """
    rows = [row(path, folder) for path in runs_below(folder)]
    if as_json:
        emit(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    emit(columns([_HEAD, *(_cells(each) for each in rows)], "<<>>>>>>>"))


def row(path: Path, folder: Path) -> dict[str, Any]:
    """Return what is shown of a run: null where it is not known.

    Args:
        path: Run directory.
        folder: Folder to which the run's name is relative.
    """
    name = str(path.relative_to(folder)) if path != folder else path.name
    shown: dict[str, Any] = {
        "run": name, "path": str(path), "state": "begun", "env_frames": None, "goal": None,
        "mean_return": None, "evaluation_mean": None, "seconds": None, "seconds_left": None,
        "dollars": None, "done": None,
    }  # fmt: skip
    try:
        statuses = [read_file(each) for each in learner_directories(path) or [path]]
    except RunDirectoryError:
        return shown
    status = statuses[0]
    evaluation = status["evaluation"] or {}
    if len(statuses) > 1:  # of their average
        evaluation = read_object(path / "summary.json").get("evaluation") or {}
    totals = totals_of(path)
    frames = int(totals.frames)
    is_gone = status["stop_reason"] is not None or status["source"]["alive"] is False
    left = None if is_gone else status["eta"]
    stop, counters = status["stop"], status["counters"] | {"env_frames": frames}
    limits = ((counters[name], stop.get(name)) for name in COUNTED)
    return {
        **shown,
        "state": state_of(status),
        "done": max((min(1.0, done / limit) for done, limit in limits if limit), default=None),
        "env_frames": frames,
        "goal": stop["env_frames"] or None,
        "mean_return": _finite(status["numbers"].get("mean_return")),
        "evaluation_mean": _finite(evaluation.get("mean")),
        "seconds": status["counters"]["seconds"],
        "seconds_left": left["seconds"] if left else None,
        "dollars": totals.dollars,
    }


def _finite(value: float | None) -> float | None:
    """Return a number that JSON has; None for another one."""
    return value if value is not None and math.isfinite(value) else None


def _cells(of: dict[str, Any]) -> tuple[str, ...]:
    return (
        of["run"], of["state"], si_number(of["env_frames"]), percent(of["done"]),
        significant(of["mean_return"]), significant(of["evaluation_mean"]), duration(of["seconds"]),
        duration(of["seconds_left"]) if of["seconds_left"] is not None else NOTHING,
        money(of["dollars"]),
    )  # fmt: skip
