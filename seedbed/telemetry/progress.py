"""File progress.csv: one row an interval, for spreadsheets and plots."""

import csv
import logging
import math
from collections.abc import Mapping
from pathlib import Path

from seedbed.runtime.files import append_row, csv_row, replacing
from seedbed.runtime.formats import Number
from seedbed.telemetry.names import present_names

log = logging.getLogger(__name__)


class ProgressFile:
    """Appends rows to a CSV file whose header is written once.

    An existing file is continued, with its columns, which take their present names. When a row has
    a column that the file lacks, such as the first update's scalars, a file with the wider header
    replaces it as a whole; earlier rows are empty there. No whole row is removed: after a restart
    from an older checkpoint the column `env_frames` steps back once. A row that a full volume or a
    kill has cut is dropped when the file is opened next.

    Attributes:
        dropped_rows: Rows that were cut, and dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # None before the file was read.
        self._columns: list[str] | None = None
        self.dropped_rows = 0

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
            append_row(self._path, csv_row(cells))
        except OSError:
            # Half a line may be there, so the file is read again before the next row.
            self._columns = None
            raise

    def _open(self) -> list[str]:
        """Return the columns of the file, [] without a file; drop the rows that were cut."""
        try:
            with self._path.open("r+b") as file:
                lines = file.readlines()
                cut = bool(lines) and not lines[-1].endswith(b"\n")
                if cut:
                    # It may have all cells, and the last one be half a number.
                    file.truncate(sum(map(len, lines[:-1])))
        except FileNotFoundError:
            return []
        with self._path.open(newline="", errors="replace") as text:
            rows: list[list[str]] = list(csv.reader(text))
        kept = rows.pop(0) if rows else []
        columns = present_names(kept)
        # 0.1 ended a cut line and went on.
        whole = [row for row in rows if len(row) == len(columns)]
        if columns != kept or len(whole) < len(rows):
            self._replace(columns, whole)
        if dropped := cut + len(rows) - len(whole):
            self.dropped_rows += dropped
            log.warning("%s: %d rows were cut in writing, and are dropped", self._path, dropped)
        return columns

    def _widen(self, columns: list[str]) -> None:
        rows: list[list[str]] = []
        if self._columns:
            with self._path.open(newline="") as old:
                _, *rows = csv.reader(old)
        self._replace(columns, [[*row, *[""] * (len(columns) - len(row))] for row in rows])
        self._columns = columns

    def _replace(self, columns: list[str], rows: list[list[str]]) -> None:
        with replacing(self._path) as draft, draft.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])


def _cell(value: Number) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
