"""Compare runs: what differs between their settings, which is better, and whether it is noise.

Runs that differ in the seed alone are one group. Where runs end at a score, groups are ranked by
the frames to it, elsewhere by their final evaluations. Other versions, commits and machines are
told apart, too. A set on a cluster is named as it is: its rows come here first.
"""

import argparse
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.analysis.sorted_finals import draw_sorted_finals
from seedbed.cli.arguments import add_namespace, finite
from seedbed.cli.compare_page import page
from seedbed.cli.output import emit
from seedbed.cli.pictures import check_picture, writing
from seedbed.deploy.releases import has_cluster
from seedbed.deploy.set_fetch import copy_of_set
from seedbed.deploy.set_releases import find_set, is_on_cluster
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.files import replacing
from seedbed.runtime.install import how_to_install
from seedbed.runtime.terminal import print_lines
from seedbed.sets.runs import Runs, load_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `compare RUN...`."""
    add = parser.add_argument
    text = "run directory, folder of a set or of runs, or set on a cluster (repeatable)"
    add("runs", metavar="RUN", nargs="+", help=text)
    add_namespace(parser)
    text = "key of the groups, or its last part (repeatable; default: all that differ)"
    add("--by", action="append", default=[], metavar="KEY", help=text)
    text = "count frames to this mean return of an evaluation (default: the one that ends the runs)"
    add("--score", type=finite, metavar="RETURN", help=text)
    text = "compare the evaluations at so many frames (default: the last ones that all runs have)"
    add("--at", type=finite, metavar="FRAMES", help=text)
    text = "also draw the finals of each group, sorted, as .png, .svg or .pdf"
    add("--sorted-finals", type=Path, metavar="FILE", help=text)
    add("--csv", type=Path, metavar="FILE", help="also write a row for each run as CSV")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON instead of the table")
    output.add_argument("--markdown", action="store_true", help="print a table in Markdown")


def run(args: argparse.Namespace) -> None:
    """Print the comparison to stdout.

    Raises:
        SeedbedError: RUN_DIRECTORY, there is no run; USAGE, runs do not differ in a key of `--by`,
            SciPy is not there, there are no finals to draw, or a name is that of a folder and of a
            set; OUTPUT, a file cannot be written; DEPLOY, a set of a cluster cannot be read.
    """
    if args.sorted_finals is not None:
        check_picture(args.sorted_finals)
    runs = load_runs(*(_folder(word, args.namespace) for word in args.runs))
    try:
        result = runs.compare(args.by, args.score, args.at)
    except ImportError as error:
        text = f"intervals need SciPy: {how_to_install('compare')}"
        raise SeedbedError(ExitCode.USAGE, text) from error
    if args.csv is not None:
        with writing(args.csv):
            _write_csv(runs, result, args.csv)
    if args.sorted_finals is not None:
        if result["horizon"] is None:
            why = "; ".join(result["refusals"])
            raise SeedbedError(ExitCode.USAGE, f"there are no finals to draw: {why}")
        with writing(args.sorted_finals):
            draw_sorted_finals(result, args.sorted_finals)
    if args.json:
        emit(json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        emit(page(result, args.markdown))


def _folder(word: str, namespace: str | None) -> Path:
    """Return the folder that a word of the command line means: of this machine, or of a set."""
    if "/" in word or (namespace is None and not is_on_cluster(word, None)):
        return Path(word)
    if namespace is None and not has_cluster():
        return Path(word)  # that it is not there is told by who reads it
    try:
        one = find_set(word, namespace or "default")
    except SeedbedError as error:
        if namespace is not None or error.code is not ExitCode.DEPLOY:
            raise
        raise RunDirectoryError(f"there is no folder {word} here, and {error}") from error
    return copy_of_set(one, print_lines)


def _write_csv(runs: Runs, result: Mapping[str, Any], file: Path) -> None:
    tables = [result, *([result["confirmation"]] if result["confirmation"] else [])]
    group_of = {
        name: group["label"] for one in tables for group in one["groups"] for name in group["runs"]
    }
    columns = {name: found.tolist() for name, found in runs.columns().items()}
    groups = [group_of[name] for name in columns["run"]]
    with replacing(file) as temporary, temporary.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["group", *columns])
        for row in zip(groups, *columns.values(), strict=True):
            writer.writerow(map(_cell, row))


def _cell(value: Any) -> Any:
    if value != value:  # not measured
        return ""
    return json.dumps(value) if isinstance(value, dict | list | bool) or value is None else value
