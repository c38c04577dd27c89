"""The report's pictures. They need matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seedbed.analysis.ball import Ball, Mark, Norm

TITLES: dict[Norm, str] = {
    "frobenius": "Frobenius norm: ‖X − X̄‖, distance to the average",
    "spread": "spread: largest 2-norm distance of two learners",
}
_MARKS = {
    "restart": ("tab:purple", "--", "a learner began again"),
    "graph": ("black", ":", "graph closed or opened"),
    "void": ("tab:red", "-", "graph void: not strongly connected"),
}


def draw_ball(ball: Ball, title: str, file: Path) -> None:
    """Figure 2a of Assran et al. 2019, once in each norm.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 5.6), dpi=110, layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(1, 2)
    for axes, (norm, heading) in zip(panels, TITLES.items(), strict=True):
        for label, look, curve in _curves(ball, norm):
            seconds, values = _line(ball, curve)
            if np.isfinite(values).any():
                axes.plot(seconds, values, label=label, **look)
        for mark, when in _once(ball.marks):
            colour, style, label = _MARKS[mark]
            for at, moment in enumerate(when):
                axes.axvline(
                    moment, color=colour, linewidth=1, alpha=0.7, zorder=0, linestyle=style,
                    label=None if at else label,
                )  # fmt: skip
        axes.set(title=heading, xlabel="seconds since the first event", yscale="log")
        axes.set_ylabel("Frobenius norm" if norm == "frobenius" else "spread (2-norm)")
        _limit(axes, ball, norm)
        axes.grid(alpha=0.3)
        # Below, where no curve is hidden by it.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize=9)
    figure.savefig(file)


def draw_gradients(
    similarity: NDArray[np.float64], graphs: Sequence[set[tuple[int, int]]], title: str, file: Path
) -> None:
    """Figure 2b: [n, n] cosine similarities, with `peer` where one of a pair sends to the other.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    n = len(similarity)
    side = 2.4 + 0.75 * max(n, 4)
    figure = Figure(figsize=(side + 1.2, side), dpi=110, layout="constrained")
    axes = figure.subplots()
    apart = similarity[~np.eye(n, dtype=bool)]
    seen = apart[np.isfinite(apart)]
    # A gradient is always like itself: the colours are for the differences of the others.
    low, high = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
    margin = max(0.02, 0.1 * (high - low))
    image = axes.imshow(similarity, cmap="magma", vmin=low - margin, vmax=high + margin)
    figure.colorbar(image, ax=axes, label="cosine similarity (the diagonal is 1)", extend="max")
    peers = {pair for graph in graphs for a, b in graph for pair in ((a, b), (b, a))}
    for i in range(n):
        for j in range(n):
            value = similarity[i, j]
            dark = not value > (low + high) / 2
            axes.text(
                j,
                i,
                f"{value:.2f}" + ("\npeer" if (i, j) in peers else ""),
                ha="center",
                va="center",
                fontsize=9,
                color="white" if dark else "black",
            )
    axes.set(xticks=range(n), yticks=range(n), xlabel="learner", ylabel="learner")
    axes.set_title(title, fontsize=10)
    figure.savefig(file)


def _curves(ball: Ball, norm: Norm) -> list[tuple[str, dict[str, object], str]]:
    beta = ball.beta[norm]
    curves: list[tuple[str, dict[str, object], str]] = [
        ("true distance", {"color": "black", "marker": ".", "linewidth": 1}, f"{norm}.distance"),
        ("exact bound", {"color": "#1f6f5c", "linewidth": 1.6}, f"{norm}.bound"),
    ]
    if beta is not None:
        trivial = ", says nothing" if beta == 1 else ""
        label = f"Proposition 1, β = {beta:.5g}{trivial}"
        style: dict[str, object] = {"color": "tab:orange", "linewidth": 1.2, "linestyle": "--"}
        curves.append((label, style, f"{norm}.proposition_1"))
    if not isinstance(ball.proposition_2, str):
        label = f"Proposition 2, w = {ball.proposition_2.window}"
        style = {"color": "tab:blue", "linewidth": 1.2, "linestyle": "-."}
        curves.append((label, style, f"{norm}.proposition_2"))
    return curves


def _line(ball: Ball, curve: str) -> tuple[list[float], NDArray[np.float64]]:
    """What is known of a curve, with a gap between two segments, and one in the true distance
    where a learner was away: what lies between is not known.
    """
    restarts = [mark.seconds for mark in ball.marks if mark.what == "restart"]
    norm, name = curve.split(".")
    seconds: list[float] = []
    values: list[float] = []
    segment: int | None = -1
    for point in ball.points:
        value = getattr(getattr(point, norm), name)
        if value is None:
            continue
        away = name == "distance" and any(
            seconds[-1] < at < point.seconds for at in restarts if seconds
        )
        if values and (point.segment != segment or away):
            seconds.append(point.seconds)
            values.append(np.nan)
        segment = point.segment
        seconds.append(point.seconds)
        values.append(value if value > 0 else np.nan)
    return seconds, np.array(values, np.float64)


def _once(marks: Sequence[Mark]) -> list[tuple[str, list[float]]]:
    """When each kind happened: every learner logs a graph's change, at about the same time."""
    found: dict[str, list[float]] = {}
    for mark in sorted(marks, key=lambda mark: mark.seconds):
        times = found.setdefault(mark.what, [])
        if mark.what == "restart" or not times or mark.seconds - times[-1] > 1.0:
            times.append(mark.seconds)
    return list(found.items())


def _limit(axes: object, ball: Ball, norm: Norm) -> None:
    """Exact zeros and what has all but vanished are not worth decades of the picture."""
    known = [
        value
        for point in ball.points
        for value in (point.values(norm).distance, point.values(norm).bound)
        if value
    ]
    if known and max(known) > 1e6 * min(known):
        axes.set_ylim(bottom=max(known) * 1e-6)  # type: ignore[attr-defined]
