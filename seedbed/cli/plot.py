"""Draw learning curves: return by frames and by minutes, of one run or of several.

Runs of one experiment that differ in the seed are drawn as their mean with its 95 % interval, from
three seeds on, and so are the learners of a run that gossip. A table of the last returns and
evaluations goes to stderr.
"""

import argparse
import csv
import sys
from collections.abc import Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

from seedbed.analysis.curves import Curve, Group, draw_curves, read_groups
from seedbed.cli.output import add_json, print_result
from seedbed.cli.status import read_file
from seedbed.cli.status_page import state_of
from seedbed.runs.found import runs_below
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.formats import NOTHING, columns, si_number, significant
from seedbed.runtime.install import how_to_install
from seedbed.runtime.shortage import cannot_write

_FORMATS = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `plot RUN_DIR...`."""
    add = parser.add_argument
    text = "run directory, or a folder of runs (repeatable)"
    add("run_dirs", metavar="RUN_DIR", nargs="+", type=Path, help=text)
    text = "picture: .png, .svg or .pdf (default: curve.png in the only run, plot.png of several)"
    add("--out", type=Path, metavar="FILE", help=text)
    add("--csv", type=Path, metavar="FILE", help="also write the points of all curves as CSV")
    add("--title", help="title of the picture (default: names of the runs)")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Draw, and print where.

    Raises:
        SeedbedError: RUN_DIRECTORY: no such run, or one without an episode. USAGE: matplotlib is
            not there, or the name has another ending. OUTPUT: the picture, or the CSV, cannot be
            written.
    """
    paths = _runs(args.run_dirs)
    groups = read_groups([path.resolve() for path in paths])
    single = len(paths) == 1
    out = args.out or (paths[0] / "curve.png" if single else Path("plot.png"))
    title = args.title or ", ".join(group.label for group in groups)
    if out.suffix.lower() not in _FORMATS:
        raise SeedbedError(
            ExitCode.USAGE, f"cannot write the plot {out}: its name must end in .png, .svg or .pdf"
        )
    file = out
    try:
        draw_curves(groups, title, file)
        if args.csv:
            file = args.csv
            _write_csv(groups, file)
    except ImportError as error:
        raise SeedbedError(
            ExitCode.USAGE, f"plots need matplotlib and SciPy: {how_to_install('plots')}"
        ) from error
    except OSError as error:
        raise cannot_write(file, error) from error
    rows = [_row(group, curve) for group in groups for curve in group.curves]
    print(_table(rows), file=sys.stderr)
    print(f"plot: {out}", file=sys.stderr)
    print_result(args, {"file": str(out), "runs": rows})


def _runs(paths: Sequence[Path]) -> list[Path]:
    """Return the one run of `paths`, or the runs at and below them that have a curve.

    Raises:
        SeedbedError: RUN_DIRECTORY: none is there, or none has a curve.
    """
    found = [run for path in paths for run in runs_below(path)]
    if len(found) == 1:
        return found
    drawn, why = [], None
    for run in found:
        try:
            read_groups([run.resolve()])
            drawn.append(run)
        except RunDirectoryError as error:
            why = error
            print(f"left out: {error}", file=sys.stderr)
    if not drawn and why is not None:
        raise why
    return drawn


def _row(group: Group, curve: Curve) -> dict[str, Any]:
    evaluation = (curve.summary.get("evaluation") or {}).get("mean")
    if evaluation is None and len(curve.evaluations):
        evaluation = float(curve.evaluations[-1, 2])
    return {
        "run": str(curve.path.name),
        "group": group.label,
        "env_frames": int(curve.frames[-1]),
        "minutes": float(curve.minutes[-1]),
        "mean_return": float(curve.returns[-1]),
        "best_mean_return": float(curve.returns.max()),
        "evaluation_mean": evaluation,
        "stop_reason": curve.summary.get("stop_reason"),
        "state": _state(curve.path),
    }


def _state(path: Path) -> str:
    """Return the state of a run as `seedbed status` and `seedbed list` name it."""
    try:
        return state_of(read_file(path))
    except RunDirectoryError:
        return NOTHING


def _table(rows: Sequence[dict[str, Any]]) -> str:
    header = ("run", "frames", "minutes", "return", "best", "evaluation", "ended by")
    cells = [
        (
            row["run"],
            si_number(row["env_frames"]),
            significant(row["minutes"]),
            significant(row["mean_return"]),
            significant(row["best_mean_return"]),
            significant(row["evaluation_mean"]),
            row["stop_reason"] or row["state"],
        )
        for row in rows
    ]
    return columns([header, *cells], "<" * len(header))


def _write_csv(groups: Sequence[Group], file: Path) -> None:
    with file.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        names = ["mean_return", "evaluation_mean", "evaluation_standard_error"]
        writer.writerow(["run", "env_frames", "minutes", *names])
        for group in groups:
            for curve in group.curves:
                points = zip(curve.frames, curve.minutes, curve.returns, strict=True)
                rows = [[*row, nan, nan] for row in points]
                rows += [[*row[:2], nan, *row[2:]] for row in curve.evaluations.tolist()]
                for row in sorted(rows):
                    cells = ("" if isnan(x) else f"{x:.8g}" for x in row)
                    writer.writerow([curve.path.name, *cells])
