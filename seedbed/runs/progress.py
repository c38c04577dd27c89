"""The columns of a run's progress.csv."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.telemetry.names import present_names


def load_progress(run_dir: str | Path) -> dict[str, NDArray[Any]]:
    """Load the columns of a run's `progress.csv`, one entry an interval of the training.

    Args:
        run_dir: Run directory; of a run of several learners, one of its `learner-N`.

    Returns:
        Arrays [rows] by column: float64 with NaN where nothing was measured, or text. The columns
        are those of `docs/metrics.md`, such as `env_frames`, `run_seconds` and `mean_return`,
        also where the file has older names.

    Raises:
        SeedbedError: RUN_DIRECTORY, there is no progress.csv.
    """
    path = Path(run_dir) / "progress.csv"
    try:
        with path.open(newline="") as file:
            names, *rows = csv.reader(file)
    except (OSError, ValueError) as error:
        learners = sorted(item.parent.name for item in Path(run_dir).glob("learner-*/progress.csv"))
        advice = f": name one of {', '.join(learners)}" if learners else ""
        raise RunDirectoryError(f"{path} cannot be read ({error}){advice}") from error
    # A process that was killed may have left half a row.
    whole = [row for row in rows if len(row) == len(names)]
    columns = enumerate(present_names(names))
    return {name: _column([row[i] for row in whole]) for i, name in columns}


def _column(cells: list[str]) -> NDArray[Any]:
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return np.array(cells)
