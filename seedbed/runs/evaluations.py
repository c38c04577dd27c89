"""`evaluations.csv` of a run: one row for each evaluation, which learning curves are drawn from."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.runtime.files import append_row, csv_row

FILE = "evaluations.csv"
COLUMNS = (
    *("env_frames", "updates", "training_seconds", "episodes", "policy", "mean"),
    *("standard_error", "median", "min", "max", "mean_length", "human_normalised", "checkpoint"),
)


def append_evaluation(path: Path, result: Mapping[str, Any]) -> None:
    """Append a row.

    Raises:
        OSError: the file cannot be written.
    """
    row = (result.get(name) for name in COLUMNS)
    cells = ("" if value is None else value for value in row)
    append_row(path / FILE, csv_row(cells), csv_row(COLUMNS))


def read_evaluations(path: Path) -> list[dict[str, str]]:
    """Return the rows, by frames; none where nothing was evaluated.

    A checkpoint that was evaluated again counts with its last row. A row that was cut, as a disk
    was full, is left out.
    """
    try:
        with (path / FILE).open(newline="") as file:
            # A run has one checkpoint of a name, whatever the folder was called on the way to it.
            whole = [
                r for r in csv.DictReader(file) if r["mean"] and r["checkpoint"] and None not in r
            ]
            rows = {Path(row["checkpoint"]).name: row for row in whole}
    except (OSError, KeyError):
        return []
    return sorted(rows.values(), key=lambda row: float(row["env_frames"]))
