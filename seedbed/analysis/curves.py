"""Learning curves of runs: return by frames, updates, minutes or dollars; seeds as mean and band.

The groups are those of `seedbed compare`, and the unit is the run: several learners of one run are
one curve, their mean.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.plots import height, line_style
from seedbed.runs.evaluations import read_evaluations
from seedbed.runs.history import read_history
from seedbed.runs.layout import learner_directories
from seedbed.runs.progress import load_progress
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.files import read_object, replacing
from seedbed.sets.groups import differing_settings, group_runs
from seedbed.sets.records import Record
from seedbed.sets.statistics import LEAST_SEEDS, half_widths

# The axes: their columns in progress.csv, the unit of these, and how a picture calls them.
_COLUMNS = {
    "frames": ("env_frames", 1.0, "emulator frames"),
    "updates": ("updates", 1.0, "updates"),
    "minutes": ("run_seconds", 60.0, "minutes of training"),
    "dollars": ("run_dollars", 1.0, "dollars"),
}
AXES = tuple(_COLUMNS)
_POINTS = 20_000

Array = NDArray[np.float64]


@dataclass
class Curve:
    """Learning curve of one run, of one of its learners where there are several.

    Attributes:
        name: Name of the run, and of the learner.
        axes: [N] for each of `AXES`, frames growing; NaN where nothing was measured.
        returns: [N] mean return of the last 100 episodes of the training.
        summary: summary.json; {} of a run that has not ended.
        evaluations: [M] for each of `AXES`, for `mean` and for `standard_error`, of
            evaluations.csv; NaN where nothing was measured.
        changes: Emulator frames at which settings were changed, and the settings.
    """

    name: str
    axes: Mapping[str, Array]
    returns: Array
    summary: Mapping[str, Any] = field(default_factory=dict)
    evaluations: Mapping[str, Array] = field(default_factory=dict)
    changes: Sequence[tuple[float, str]] = ()

    def at(self, axis: str, frames: Any) -> Any:
        """Return where an axis was at some emulator frames, [...]; linear between two rows."""
        return np.interp(frames, self.axes["frames"], self.axes[axis])


@dataclass
class CurveGroup:
    """Curves of one group of runs.

    Attributes:
        label: Name of the group, in the legend.
        runs: The runs, each with one curve a learner.
    """

    label: str
    runs: Sequence[tuple[Record, Sequence[Curve]]]

    @property
    def curves(self) -> list[Curve]:
        """All curves."""
        return [curve for _, curves in self.runs for curve in curves]

    def mean(self, axis: str) -> tuple[Array, Array, Array]:
        """Return x, mean and half of the mean's 95 % interval, [P] each, where all runs have x.

        x are all rows of the group; of very many, as many evenly spaced. Between the rows of a
        curve, returns are interpolated. Fewer than three runs have an interval of NaN.

        Args:
            axis: One of `AXES`.

        Raises:
            ImportError: SciPy is not installed.
        """
        xs = [curve.axes[axis] for curve in self.curves]
        low, high = max(x[0] for x in xs), min(x[-1] for x in xs)
        every = np.unique(np.concatenate(xs))
        grid = every[(every >= low) & (every <= high)]
        if len(grid) > _POINTS:
            grid = np.linspace(low, high, _POINTS)
        values = np.stack(
            [
                np.mean([np.interp(grid, c.axes[axis], c.returns) for c in curves], axis=0)
                for _, curves in self.runs
            ]
        )
        return grid, values.mean(axis=0), half_widths(values)

    def legend(self) -> str:
        """Return what the thick line of the group is, and its band."""
        if len(self.runs) > 1:
            band = ", 95 % interval" if len(self.runs) >= LEAST_SEEDS else ", too few for a band"
            return f"{self.label}: mean of {len(self.runs)} seeds{band}"
        learners = len(self.curves)
        return self.label + (f": mean of {learners} learners, one seed" if learners > 1 else "")


def read_curve(path: Path, name: str = "") -> Curve:
    """Read the learning curve of a run.

    A run that goes on from an older checkpoint repeats frames: only the last time counts.

    Args:
        path: Run directory; of a run of several learners, that of one.
        name: Name of the curve; empty takes the folder's.

    Raises:
        SeedbedError: RUN_DIRECTORY: no progress.csv, or no episode has ended.
    """
    columns = load_progress(path)
    known = np.flatnonzero(np.isfinite(columns["mean_return"]))
    frames = columns["env_frames"][known]
    if not frames.size:
        raise RunDirectoryError(f"{path}: no episode has ended yet, so there is no curve")
    # Rows of which no later one has fewer frames.
    last = known[np.minimum.accumulate(frames[::-1])[::-1] >= frames]
    nothing = np.full(len(columns["env_frames"]), np.nan)
    axes = {axis: columns.get(key, nothing)[last] / u for axis, (key, u, _) in _COLUMNS.items()}
    returns = columns["mean_return"][last]
    curve = Curve(name or path.name, axes, returns, read_object(path / "summary.json"))
    curve.evaluations = _evaluations(path, curve)
    curve.changes = [
        (
            float(start["env_frames"]),
            ", ".join(f"{c['key'].rpartition('.')[2]} {c['after']}" for c in start["changes"]),
        )
        for start in read_history(path)["starts"]
        if start["changes"]
    ]
    return curve


def _evaluations(path: Path, curve: Curve) -> dict[str, Array]:
    names = ("env_frames", "updates", "training_seconds", "mean", "standard_error")
    rows = [[float(row.get(name) or "nan") for name in names] for row in read_evaluations(path)]
    frames, updates, seconds, mean, error = np.array(rows, np.float64).reshape(-1, 5).T
    return {
        "frames": frames,
        "updates": updates,
        "minutes": seconds / 60,
        "dollars": np.asarray(curve.at("dollars", frames)),
        "mean": mean,
        "standard_error": error,
    }


def read_groups(
    records: Sequence[Record], by: Sequence[str] = ()
) -> tuple[list[CurveGroup], list[str]]:
    """Read the curves of runs, in the groups of `seedbed compare`.

    Runs that confirm what others of their set have chosen are groups of their own.

    Args:
        records: The runs, at least one.
        by: As of `group_runs`.

    Returns:
        The groups, and what a reader has to know of them, such as why runs were left out.

    Raises:
        SeedbedError: USAGE, as `group_runs`; RUN_DIRECTORY, as `read_curve`, where no run is left.
    """
    curves: dict[Path, list[Curve]] = {}
    notes: list[str] = []
    why: RunDirectoryError | None = None
    for record in records:
        learners = learner_directories(record.path)
        try:
            curves[record.path] = [
                read_curve(learner, f"{record.name}/{learner.name}") for learner in learners
            ] or [read_curve(record.path)]
        except RunDirectoryError as error:
            notes.append(f"left out: {error}")
            why = error
    drawn = [record for record in records if record.path in curves]
    if not drawn and why is not None:
        raise why
    groups = []
    for confirms in (False, True):
        some = [record for record in drawn if record.confirms == confirms]
        if not some:
            continue
        differing = differing_settings(some)
        found = group_runs(some, [key for key in by if key in differing] if confirms else by)
        notes += found.notes
        for group in found.groups:
            label = group.label if group.values else _span(group.records)
            label += " (fresh seeds)" * (confirms and len(some) < len(drawn))
            runs = [(record, curves[record.path]) for record in group.records]
            groups.append(CurveGroup(label, runs))
    return groups, notes


def _span(records: Sequence[Record]) -> str:
    """Return the names of runs that nothing but the seed tells apart."""
    names = [record.name for record in records]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


def check_axes(groups: Sequence[CurveGroup], axes: Sequence[str]) -> None:
    """Refuse axes that a run has not measured.

    Raises:
        SeedbedError: RUN_DIRECTORY.
    """
    for group in groups:
        for curve in group.curves:
            for axis in axes:
                if not np.isfinite(curve.axes[axis]).all():
                    raise RunDirectoryError(
                        f"{curve.name} has no {axis} in its progress.csv "
                        f"({_COLUMNS[axis][0]}): draw it by another --axis"
                    )


def rows(groups: Sequence[CurveGroup], axes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield every point: rows of the runs, their evaluations, and the means with half intervals.

    The points of a group depend on its own runs alone. A mean has no value on axes that are not
    its own.

    Raises:
        ImportError: SciPy is not installed.
    """
    for group in groups:
        for curve in group.curves:
            points = [
                {**dict(zip(AXES, at, strict=True)), "mean_return": mean}
                for *at, mean in zip(*curve.axes.values(), curve.returns, strict=True)
            ]
            found = curve.evaluations
            points += [
                {
                    **{axis: found[axis][i] for axis in AXES},
                    "evaluation_mean": found["mean"][i],
                    "evaluation_standard_error": found["standard_error"][i],
                }
                for i in range(len(found["mean"]))
            ]
            for point in sorted(points, key=lambda one: (one["frames"], "mean_return" not in one)):
                yield {"run": curve.name, "seeds": 1, **point}
        if len(group.curves) > 1:
            name = f"mean of {_span([record for record, _ in group.runs])}"
            for axis in axes:
                for x, mean, half in zip(*group.mean(axis), strict=True):
                    point = {"mean_return": mean, "half_interval": half}
                    yield {"run": name, "seeds": len(group.runs), axis: x, **point}


def draw_curves(groups: Sequence[CurveGroup], axes: Sequence[str], title: str, file: Path) -> None:
    """Draw return by each axis: every row of each curve thin, a group's mean and band over them.

    Raises:
        ImportError: matplotlib or SciPy is not installed.
    """
    from matplotlib.figure import Figure

    size = (6.0 * max(len(axes), 2), height(len(groups)))
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
    for panel, axis in zip(panels, axes, strict=True):
        largest = max(float(curve.axes[axis][-1]) for group in groups for curve in group.curves)
        unit, divisor = ("", 1.0)
        if axis in ("frames", "updates") and largest >= 2e3:
            unit, divisor = ("million ", 1e6) if largest >= 2e6 else ("thousand ", 1e3)
        for at, group in enumerate(groups):
            _draw_group(panel, group, axis, divisor, line_style(at))
        panel.set_xlabel(unit + _COLUMNS[axis][2])
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("mean return of the last 100 episodes")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2,
        title=_caption(groups), title_fontsize=8,
    )  # fmt: skip
    with replacing(file) as temporary:
        figure.savefig(temporary)


def _draw_group(
    panel: Any, group: CurveGroup, axis: str, divisor: float, style: Mapping[str, Any]
) -> None:
    curves = group.curves
    colour = style["color"]
    thin = {"linewidth": 0.8, "alpha": 0.35} if len(curves) > 1 else {"label": group.legend()}
    for curve in curves:
        for frame, text in curve.changes:
            place = float(curve.at(axis, frame)) / divisor
            panel.axvline(place, color=colour, linewidth=0.8, linestyle=":")
            panel.annotate(
                text, (place, 1.0), xycoords=("data", "axes fraction"), fontsize=7,
                rotation=90, va="top", ha="right", color=colour,
            )  # fmt: skip
        x, marker = curve.axes[axis] / divisor, _marker(curve.returns)
        panel.plot(x, curve.returns, **style, **thin, marker=marker)
        mean, error = curve.evaluations["mean"], np.nan_to_num(curve.evaluations["standard_error"])
        if len(mean):
            x = curve.evaluations[axis] / divisor
            panel.errorbar(x, mean, error, color=colour, fmt="o", markersize=4, capsize=3)
    if len(curves) > 1:
        x, mean, half = group.mean(axis)
        label = group.legend()
        if not len(x):  # one ends before another begins
            label = f"{group.label}: {len(group.runs)} seeds, which share no {axis}"
        panel.plot(x / divisor, mean, **style, linewidth=2, label=label, marker=_marker(mean))
        if len(group.runs) >= LEAST_SEEDS:
            panel.fill_between(x / divisor, mean - half, mean + half, color=colour, alpha=0.2)


def _marker(values: Array) -> str:
    """Return a mark for a line of one point, which would not be seen."""
    return "x" if len(values) == 1 else ""


def _caption(groups: Sequence[CurveGroup]) -> str:
    """Return what lines, bands and points are."""
    parts = []
    if any(len(group.curves) > 1 for group in groups):
        parts.append(
            "thin: each run; thick: their mean, linear between rows, until the first of them ends; "
            "band: Student's t"
        )
    if any(len(curve.evaluations["mean"]) for group in groups for curve in group.curves):
        parts.append("points: evaluations of each run, with their standard error over episodes")
    return "\n".join(parts)
