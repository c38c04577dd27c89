"""File progress.csv: one row an interval, for spreadsheets and plots."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from pathlib import Path

from seedbed.runtime.files import replacing
from seedbed.telemetry.formats import Number


class ProgressFile:
    """Appends rows to a CSV file whose header is written once.

    An existing file is continued, with its columns. When a row has a column that the file lacks,
    such as the first update's scalars, a file with the wider header replaces it as a whole; earlier
    rows are empty there. No row is removed: after a restart from an older checkpoint the column
    `env_frames` steps back once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # None before the file was read.
        self._columns: list[str] | None = None

    def append(self, row: Mapping[str, Number]) -> None:
        """Write one row. None and NaN become empty cells.

        Raises:
            OSError: The row cannot be written, such as on a full disk. The next call tries again.
        """
        if self._columns is None:
            self._columns = self._open()
        added = [name for name in row if name not in self._columns]
        if added:
            self._widen([*self._columns, *added])
        cells = [_cell(row.get(name)) for name in self._columns]
        try:
            with self._path.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(cells)
        except OSError:
            # Half a line may be there, so the file is read again before the next row.
            self._columns = None
            raise

    def _open(self) -> list[str]:
        """Return the columns of the file, [] without a file, and end a last line that was cut."""
        try:
            with self._path.open("r+b") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")
        except FileNotFoundError:
            return []
        with self._path.open(newline="") as text:
            return next(csv.reader(text), [])

    def _widen(self, columns: list[str]) -> None:
        with replacing(self._path) as draft, draft.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            if self._columns:
                with self._path.open(newline="") as old:
                    rows = csv.reader(old)
                    next(rows)
                    writer.writerows([*row, *[""] * (len(columns) - len(row))] for row in rows)
        self._columns = columns


def _cell(value: Number) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
