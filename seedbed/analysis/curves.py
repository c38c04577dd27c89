"""Learning curves of runs: return by frames and by minutes, seeds as mean and interval."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from seedbed.runs.evaluations import read_evaluations
from seedbed.runs.history import read_history
from seedbed.runs.layout import learner_directories
from seedbed.runs.progress import load_progress
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.files import replacing
from seedbed.sets.statistics import LEAST_SEEDS, half_widths

# Settings in which the seeds of one experiment may differ: none of them changes what is learned.
_OF_A_SEED = ("seed", "name", "logging", "cost", "stop")
_POINTS = 400


@dataclass
class Curve:
    """Learning curve of one run, of one of its learners where there are several.

    Attributes:
        path: run directory.
        frames: [N] emulator frames, growing.
        minutes: [N] minutes of training.
        returns: [N] mean return of the last 100 episodes of the training.
        summary: summary.json; {} of a run that has not ended.
        changes: emulator frames and minutes at which settings were changed, and the settings.
        evaluations: [M, 4] emulator frames, minutes of training, mean return, standard error (NaN
            where there is none), of evaluations.csv.
    """

    path: Path
    frames: NDArray[np.float64]
    minutes: NDArray[np.float64]
    returns: NDArray[np.float64]
    summary: dict[str, Any] = field(default_factory=dict)
    evaluations: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4)))
    changes: list[tuple[float, float, str]] = field(default_factory=list)


@dataclass
class Group:
    """Curves of one experiment, which differ in the seed alone.

    Attributes:
        label: name of the group, in the legend.
        curves: one for each seed.
    """

    label: str
    curves: list[Curve]

    def mean(self, axis: str) -> tuple[NDArray[np.float64], ...]:
        """Return x, mean and half of the mean's 95 % interval, [P] each, where all curves have x.

        Between the rows of a curve, returns are interpolated. Fewer than three curves have an
        interval of NaN.

        Args:
            axis: `frames` or `minutes`.

        Raises:
            ImportError: SciPy is not installed.
        """
        xs = [getattr(curve, axis) for curve in self.curves]
        low, high = max(x[0] for x in xs), min(x[-1] for x in xs)
        grid = np.linspace(low, max(low, high), _POINTS)
        values = np.stack(
            [np.interp(grid, x, curve.returns) for x, curve in zip(xs, self.curves, strict=True)]
        )
        return grid, values.mean(axis=0), half_widths(values)


def read_curve(path: Path) -> Curve:
    """Read the learning curve of a run.

    A run that goes on from an older checkpoint repeats frames: only the last time counts.

    Raises:
        SeedbedError: RUN_DIRECTORY: no progress.csv, or no episode has ended.
    """
    columns = load_progress(path)
    known = np.isfinite(columns["mean_return"])
    frames, seconds = columns["env_frames"][known], columns["run_seconds"][known]
    if not frames.size:
        raise RunDirectoryError(f"{path}: no episode has ended yet, so there is no curve")
    # Rows of which no later one has fewer frames.
    last = np.minimum.accumulate(frames[::-1])[::-1] >= frames
    try:
        summary = json.loads((path / "summary.json").read_text())
    except (OSError, ValueError):
        summary = {}
    returns = columns["mean_return"][known]
    curve = Curve(path, frames[last], seconds[last] / 60, returns[last], summary)
    curve.evaluations = np.array(
        [
            [
                float(row["env_frames"]),
                float(row["training_seconds"] or "nan") / 60,
                float(row["mean"]),
                float(row["standard_error"] or "nan"),
            ]
            for row in read_evaluations(path)
        ]
    ).reshape(-1, 4)
    for start in read_history(path)["starts"]:
        if start["changes"]:
            at = float(start["env_frames"])
            minute = float(np.interp(at, curve.frames, curve.minutes))
            text = ", ".join(
                f"{c['key'].rpartition('.')[2]} {c['after']}" for c in start["changes"]
            )
            curve.changes.append((at, minute, text))
    return curve


def read_groups(paths: Sequence[Path]) -> list[Group]:
    """Read the curves of runs, seeds of one experiment together, in the order of the paths.

    Args:
        paths: run directories; a run of several learners counts as so many curves.

    Raises:
        SeedbedError: as `read_curve`.
    """
    groups: dict[str, Group] = {}
    for path in paths:
        learners = learner_directories(path) or [path]
        group = groups.setdefault(_identity(path), Group(path.name, []))
        if group.curves:
            group.label = f"{group.label.partition(' … ')[0]} … {path.name}"
        group.curves += [read_curve(learner) for learner in learners]
    return list(groups.values())


def _identity(path: Path) -> str:
    """Return what the runs of one group share: all settings, but for those of a seed."""
    try:
        settings = yaml.safe_load((path / "experiment.yaml").read_text())
        return json.dumps({k: v for k, v in settings.items() if k not in _OF_A_SEED}, default=str)
    except (OSError, yaml.YAMLError, AttributeError):
        return str(path)


def draw_curves(groups: Sequence[Group], title: str, file: Path) -> None:
    """Draw return by frames and by minutes: each curve thin, a group's mean and interval over them.

    Raises:
        ImportError: matplotlib or SciPy is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.6), dpi=110, layout="constrained")
    figure.suptitle(title)
    left, right = figure.subplots(1, 2, sharey=True)
    largest = max(float(curve.frames[-1]) for group in groups for curve in group.curves)
    scale, unit = (1e6, "million ") if largest >= 2e6 else (1e3, "thousand ")
    panels = (
        (left, "frames", scale, f"{unit}emulator frames"),
        (right, "minutes", 1.0, "minutes of training"),
    )
    for axes, axis, divisor, label in panels:
        for at, group in enumerate(groups):
            colour = f"C{at % 10}"
            several = len(group.curves) > 1
            for curve in group.curves:
                for frame, minute, text in curve.changes:
                    place = (frame if axis == "frames" else minute) / divisor
                    axes.axvline(place, color=colour, linewidth=0.8, linestyle=":")
                    axes.annotate(
                        text, (place, 1.0), xycoords=("data", "axes fraction"), fontsize=7,
                        rotation=90, va="top", ha="right", color=colour,
                    )  # fmt: skip
                x = getattr(curve, axis) / divisor
                style = {"linewidth": 0.8, "alpha": 0.35} if several else {"label": group.label}
                axes.plot(x, curve.returns, color=colour, **style)
                at_x = curve.evaluations[:, 0 if axis == "frames" else 1] / divisor
                mean, error = curve.evaluations[:, 2], np.nan_to_num(curve.evaluations[:, 3])
                if len(mean):
                    axes.errorbar(at_x, mean, error, color=colour, fmt="o", markersize=5, capsize=3)
            if several:
                x, mean, half = group.mean(axis)
                what = ", 95 % interval" if len(group.curves) >= LEAST_SEEDS else ""
                name = f"{group.label}: mean of {len(group.curves)}{what}"
                axes.plot(x / divisor, mean, color=colour, linewidth=2, label=name)
                axes.fill_between(x / divisor, mean - half, mean + half, color=colour, alpha=0.2)
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    evaluated = any(len(curve.evaluations) for group in groups for curve in group.curves)
    left.set_ylabel(
        "mean return of the last 100 episodes" + ("\n(points: evaluations)" if evaluated else "")
    )
    if len(groups) > 1 or len(groups[0].curves) > 1:
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    with replacing(file) as temporary:
        figure.savefig(temporary)
