"""Plots of the consensus analysis, and the lines of all plots. They need matplotlib."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.consensus import ConsensusAnalysis, Mark
from seedbed.analysis.snapshots import Norm
from seedbed.runtime.files import replacing

TITLES: dict[Norm, str] = {
    "frobenius": "Frobenius norm: ‖X − X̄‖, distance to the average",
    "spread": "spread: largest 2-norm distance of two learners",
}
_MARKS = {
    "restart": ("tab:purple", "--", "learner restarted"),
    "graph": ("black", ":", "graph closed or opened"),
    "void": ("tab:red", "-", "graph not strongly connected"),
}
# A bottom of the logarithmic axis below this part of its top would show nothing but zeros.
_SHOWN_RANGE = 1e-6
_COLOURS = 10
_STYLES = ("-", "--", ":", "-.")


def height(lines: int, legend_columns: int = 2) -> float:
    """Return the height in inches of a picture with a legend of so many lines below it."""
    return 4.6 + 0.24 / legend_columns * lines


def line_style(at: int) -> dict[str, Any]:
    """Return colour and style of a line that tell 40 of them apart.

    Args:
        at: Number of the line, from 0.
    """
    return {"color": f"C{at % _COLOURS}", "linestyle": _STYLES[at // _COLOURS % len(_STYLES)]}


def draw_consensus(analysis: ConsensusAnalysis, title: str, file: Path) -> None:
    """Draw Figure 2a of Assran et al. 2019, once in each norm.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 5.6), dpi=110, layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(1, 2)
    for axes, (norm, heading) in zip(panels, TITLES.items(), strict=True):
        for name, label, style in _curves(analysis, norm):
            seconds, values = _line(analysis, norm, name)
            if np.isfinite(values).any():
                axes.plot(seconds, values, label=label, **style)
        for what, times in _times(analysis.marks).items():
            colour, linestyle, label = _MARKS[what]
            style = {"color": colour, "linestyle": linestyle, "linewidth": 1, "alpha": 0.7}
            for at, seconds_at in enumerate(times):
                axes.axvline(seconds_at, label=None if at else label, zorder=0, **style)
        axes.set(title=heading, xlabel="seconds since the first event", yscale="log")
        axes.set_ylabel("Frobenius norm" if norm == "frobenius" else "spread (2-norm)")
        points = [point.values(norm) for point in analysis.points]
        shown = [value for p in points for value in (p.distance, p.bound) if value]
        if shown and min(shown) < _SHOWN_RANGE * max(shown):
            axes.set_ylim(bottom=_SHOWN_RANGE * max(shown))
        axes.grid(alpha=0.3)
        # Below the panel, so that it hides no curve.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize=9)
    with replacing(file) as temporary:
        figure.savefig(temporary)


def draw_gradients(
    similarity: NDArray[np.float64], graphs: Sequence[set[tuple[int, int]]], title: str, file: Path
) -> None:
    """Draw Figure 2b of Assran et al. 2019.

    Args:
        similarity: Cosine similarities [n, n].
        graphs: Edges (from, to) of each graph; each end of an edge is marked `peer`.
        title: Title of the plot.
        file: File to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    n = len(similarity)
    side = 2.4 + 0.75 * max(n, 4)
    figure = Figure(figsize=(side + 1.2, side), dpi=110, layout="constrained")
    axes = figure.subplots()
    others = similarity[~np.eye(n, dtype=bool)]
    finite = others[np.isfinite(others)]
    # The colours show the differences between learners, not the ones on the diagonal.
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    margin = max(0.02, 0.1 * (high - low))
    image = axes.imshow(similarity, cmap="magma", vmin=low - margin, vmax=high + margin)
    figure.colorbar(image, ax=axes, label="cosine similarity (the diagonal is 1)", extend="max")
    peers = {pair for graph in graphs for a, b in graph for pair in ((a, b), (b, a))}
    for (i, j), value in np.ndenumerate(similarity):
        text = f"{value:.2f}" + ("\npeer" if (i, j) in peers else "")
        colour = "black" if value > (low + high) / 2 else "white"
        axes.text(j, i, text, ha="center", va="center", fontsize=9, color=colour)
    axes.set(xticks=range(n), yticks=range(n), xlabel="learner", ylabel="learner")
    axes.set_title(title, fontsize=10)
    with replacing(file) as temporary:
        figure.savefig(temporary)


def _curves(analysis: ConsensusAnalysis, norm: Norm) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the field of `Values`, the label and the style of each curve."""
    beta, level = analysis.beta[norm], analysis.proposition_2
    yield "distance", "true distance", {"color": "black", "marker": ".", "linewidth": 1}
    yield "bound", "exact bound", {"color": "#1f6f5c", "linewidth": 1.6}
    if beta is not None:
        label = f"Proposition 1, β = {beta:.5g}" + (", trivial" if beta == 1 else "")
        yield "proposition_1", label, {"color": "tab:orange", "linewidth": 1.2, "linestyle": "--"}
    if not isinstance(level, str):
        label = f"Proposition 2, w = {level.window}"
        yield "proposition_2", label, {"color": "tab:blue", "linewidth": 1.2, "linestyle": "-."}


def _line(
    analysis: ConsensusAnalysis, norm: Norm, name: str
) -> tuple[list[float], NDArray[np.float64]]:
    """Return the known points of a curve, with gaps where it is unknown.

    A gap separates two segments. The true distance has a gap where a learner restarted.
    """
    restarts = [mark.seconds for mark in analysis.marks if mark.what == "restart"]
    seconds: list[float] = []
    values: list[float] = []
    segment: int | None = -1
    for point in analysis.points:
        value = getattr(point.values(norm), name)
        if value is None:
            continue
        restarted = name == "distance" and any(
            seconds[-1] < at < point.seconds for at in restarts if seconds
        )
        if values and (point.segment != segment or restarted):
            seconds.append(point.seconds)
            values.append(np.nan)
        segment = point.segment
        seconds.append(point.seconds)
        values.append(value if value > 0 else np.nan)
    return seconds, np.array(values, np.float64)


def _times(marks: Sequence[Mark]) -> dict[str, list[float]]:
    """Return the times of each kind of mark; every learner logs a change of the graph."""
    found: dict[str, list[float]] = {}
    for mark in sorted(marks, key=lambda mark: mark.seconds):
        times = found.setdefault(mark.what, [])
        if mark.what == "restart" or not times or mark.seconds - times[-1] > 1.0:
            times.append(mark.seconds)
    return found
