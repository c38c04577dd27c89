"""Draw learning curves: return by frames and by minutes, of one run or of several.

The groups are those of `seedbed compare`. Several seeds are drawn as their mean with its 95 %
interval, from three seeds on. A table of the last returns and evaluations goes to stderr.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path
from typing import Any

from seedbed.analysis.curves import AXES, Curve, CurveGroup, check_axes, draw_curves, read_groups
from seedbed.analysis.curves import rows as points_of
from seedbed.cli.output import add_json, print_result
from seedbed.cli.pictures import check_picture, writing
from seedbed.runtime.files import replacing
from seedbed.runtime.formats import columns, si_number, significant
from seedbed.sets.groups import keys_named
from seedbed.sets.records import Record
from seedbed.sets.runs import load_runs

_MOST_TITLE = 4
# The columns of the CSV, by the names of the points.
_COLUMNS = {
    **{name: name for name in ("run", "seeds", *AXES, "mean_return", "half_interval")},
    **{name: name for name in ("evaluation_mean", "evaluation_standard_error")},
    "frames": "env_frames",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `plot RUN_DIR...`."""
    add = parser.add_argument
    text = "run directory, folder of a set, or folder of runs (repeatable)"
    add("run_dirs", metavar="RUN_DIR", nargs="+", type=Path, help=text)
    text = "key of the groups, or its last part (repeatable; default: all that differ)"
    add("--by", action="append", default=[], metavar="KEY", help=text)
    text = "axis of the returns (repeatable; default: frames and minutes)"
    add("--axis", action="append", choices=AXES, help=text)
    text = "picture: .png, .svg or .pdf (default: curve.png in the only run, plot.png of several)"
    add("--out", type=Path, metavar="FILE", help=text)
    text = "also write every row of all runs, and the means, as CSV"
    add("--csv", type=Path, metavar="FILE", help=text)
    add("--title", help="title of the picture (default: names of the groups)")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Draw, and print where.

    Raises:
        SeedbedError: RUN_DIRECTORY: no such run, or one without an episode or an axis. USAGE:
            matplotlib is not there, or the name has another ending. OUTPUT: the picture, or the
            CSV, cannot be written.
    """
    loaded = load_runs(*args.run_dirs)
    records = loaded.records
    single = len(records) == 1
    out = args.out or (records[0].path / "curve.png" if single else Path("plot.png"))
    check_picture(out)
    groups, notes = read_groups(records, keys_named(args.by))
    for note in (*loaded.left_out, *notes):
        print(note, file=sys.stderr)
    axes = list(dict.fromkeys(args.axis or ("frames", "minutes")))
    check_axes(groups, axes)
    more = f", and {len(groups) - _MOST_TITLE} more" if len(groups) > _MOST_TITLE else ""
    title = args.title or ", ".join(group.label for group in groups[:_MOST_TITLE]) + more
    with writing(out):
        draw_curves(groups, axes, title, out)
    if args.csv:
        with writing(args.csv):
            _write_csv(groups, axes, args.csv)
    shown = [
        _row(group, record, curve)
        for group in groups
        for record, curves in group.runs
        for curve in curves
    ]
    print(_table(shown), file=sys.stderr)
    print(f"plot: {out}", file=sys.stderr)
    points = {"points": list(_points(groups, axes))} if args.json else {}
    print_result(args, {"file": str(out), "runs": shown, **points})


def _row(group: CurveGroup, record: Record, curve: Curve) -> dict[str, Any]:
    evaluation = (curve.summary.get("evaluation") or {}).get("mean")
    if evaluation is None and len(curve.evaluations["mean"]):
        evaluation = float(curve.evaluations["mean"][-1])
    return {
        "run": curve.name,
        "group": group.label,
        "env_frames": int(curve.axes["frames"][-1]),
        "minutes": float(curve.axes["minutes"][-1]),
        "mean_return": float(curve.returns[-1]),
        "best_mean_return": float(curve.returns.max()),
        "evaluation_mean": evaluation,
        "stop_reason": record.stop_reason or None,
        "state": record.state,
    }


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


def _points(groups: Sequence[CurveGroup], axes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the points with all columns; None where nothing was measured."""
    for point in points_of(groups, axes):
        found = {column: point.get(name, nan) for name, column in _COLUMNS.items()}
        yield {name: None if value != value else value for name, value in found.items()}


def _write_csv(groups: Sequence[CurveGroup], axes: Sequence[str], file: Path) -> None:
    with replacing(file) as temporary, temporary.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_COLUMNS.values())
        for point in _points(groups, axes):
            cells = point.values()
            writer.writerow(f"{cell:.10g}" if isinstance(cell, float) else cell for cell in cells)
