"""Draw a run's learning curve: return against frames and against minutes.

    python tools/plot_run.py RUN_DIR docs/results/NAME

writes NAME.png and NAME.csv (the columns that the picture shows, from progress.csv).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

COLUMNS = ("env_frames", "seconds", "return_mean", "episodes", "updates", "env_fps_60s")


def main(run_dir: Path, out: Path) -> None:
    """Read RUN_DIR/progress.csv; write the table and the picture."""
    with (run_dir / "progress.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["return_mean"]]
    with out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    returns = [float(row["return_mean"]) for row in rows]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for axis, column, scale, label in (
        (axes[0], "env_frames", 1e-6, "million frames (steps × action repeat)"),
        (axes[1], "seconds", 1 / 60, "minutes"),
    ):
        axis.plot([float(row[column]) * scale for row in rows], returns, color="#1f6f5c")
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("mean return of the last 100 episodes")
    figure.suptitle(out.name)
    figure.savefig(out.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
