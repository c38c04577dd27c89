"""A dumped unroll as one picture. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

# Flags by rising weight: a row is framed in the colour of the last one that it has.
FLAGS = {
    "life_lost": "tab:purple",
    "first": "tab:green",
    "truncated": "tab:orange",
    "terminated": "tab:red",
}
_PER_LINE, _MOST_ROWS = 11, 44
_SHOWN_NUMBERS = 8  # of a vector observation


def eventful_columns(arrays: Arrays, count: int) -> list[int]:
    """The columns in which most happens: ends of episodes, lost lives, rewards."""
    events = sum(arrays[name].sum(axis=0) for name in FLAGS)
    score = 100 * events + np.count_nonzero(arrays["reward"], axis=0)
    return sorted(np.argsort(-score, kind="stable")[:count].tolist())


def shown_rows(arrays: Arrays, column: int) -> range:
    """All rows, or as many as fit a page, around the first flag of the column."""
    rows = arrays["reward"].shape[0]
    events = np.flatnonzero(sum(arrays[name][:, column] for name in FLAGS))
    middle = int(events[0]) if len(events) else 0
    start = max(0, min(middle - _MOST_ROWS // 2, rows - _MOST_ROWS))
    return range(start, min(rows, start + _MOST_ROWS))


def row_flags(arrays: Arrays, row: int, column: int) -> list[str]:
    """Names of the flags of a row."""
    return [name for name in FLAGS if arrays[name][row, column]]


def draw(arrays: Arrays, title: str, file: Path, columns: int = 3) -> None:
    """Draw a few columns over time, with flags, rewards, actions and log rho.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    chosen = eventful_columns(arrays, columns)
    images = arrays["observation"].ndim - 2 in (2, 3)
    lines = [-(-len(shown_rows(arrays, column)) // _PER_LINE) for column in chosen]
    height = sum(0.45 + 2.25 * n for n in lines) if images else 4.6 * len(chosen)
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    figure = Figure(figsize=(17.0, height + 0.9), dpi=100, layout=layout)
    figure.suptitle(title, fontsize=13)
    parts = np.ravel(figure.subfigures(len(chosen), 1, height_ratios=lines, squeeze=False))
    for part, column in zip(parts, chosen, strict=True):
        version = arrays["version"][column]
        rows = shown_rows(arrays, column)
        part.suptitle(
            f"column {column}: rows {rows.start} to {rows.stop - 1} of "
            f"{arrays['reward'].shape[0]}, parameters of version {version:g} acted",
            fontsize=11,
            fontweight="bold",
        )
        if images:
            _draw_images(part, arrays, column, rows)
        else:
            _draw_numbers(part, arrays, column, rows)
    figure.savefig(file)


def caption(arrays: Arrays, row: int, column: int) -> str:
    """Row number and flags, what the row brought, what was chosen on it."""
    lines = [" ".join([f"t={row}", *(name.upper() for name in row_flags(arrays, row, column))])]
    lines.append(f"r={arrays['reward'][row, column]:+g}")
    if row < len(arrays["action"]):
        lines[-1] += f"  {action_text(arrays, row, column)}"
        if "log_rho" in arrays and not arrays["first"][row + 1, column]:
            lines.append(f"log ρ={arrays['log_rho'][row, column]:+.4f}")
    else:
        lines.append("(bootstrap)")
    return "\n".join(lines)


def action_text(arrays: Arrays, row: int, column: int) -> str:
    """The action of a row. One that was chosen after the episode's end does nothing."""
    chosen = f"a={arrays['action'][row, column]}"
    return f"({chosen})" if arrays["first"][row + 1, column] else chosen


def _draw_images(part: Any, arrays: Arrays, column: int, rows: range) -> None:
    context = len(arrays["observation"]) - len(arrays["reward"])
    lines = -(-len(rows) // _PER_LINE)
    for axes in np.ravel(part.subplots(lines, _PER_LINE, squeeze=False))[len(rows) :]:
        axes.set_axis_off()
    for axes, row in zip(part.axes, rows, strict=False):
        picture = arrays["observation"][context + row, column]
        if picture.ndim == 3 and picture.shape[-1] not in (3, 4):
            picture = picture[..., -1]
        top = 255 if picture.dtype == np.uint8 else None
        axes.imshow(picture, cmap="gray", vmin=0 if top else None, vmax=top)
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel(caption(arrays, row, column), fontsize=9)
        flags = row_flags(arrays, row, column)
        for spine in axes.spines.values():
            spine.set(color=FLAGS[flags[-1]] if flags else "lightgray", linewidth=4 if flags else 1)


def _draw_numbers(part: Any, arrays: Arrays, column: int, rows: range) -> None:
    context = len(arrays["observation"]) - len(arrays["reward"])
    seen = arrays["observation"][context:, column].reshape(len(arrays["reward"]), -1)
    t = np.array(rows)
    acted = t[t < len(arrays["action"])]
    top, middle, bottom = part.subplots(3, 1, sharex=True, height_ratios=[3, 1, 1])
    gaps = np.flatnonzero(arrays["first"][t, column])  # no line from one episode to the next
    for i in range(min(seen.shape[1], _SHOWN_NUMBERS)):
        values = np.insert(seen[t, i].astype(float), gaps, np.nan)
        top.plot(np.insert(t, gaps, t[gaps]), values, marker=".", label=f"observation[{i}]")
    top.set_ylabel("observation")
    middle.bar(t, arrays["reward"][t, column], color="lightgray", width=0.5)
    middle.set_ylabel("reward,\naction")
    for row in acted:
        middle.annotate(
            action_text(arrays, row, column),
            (row, 0),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    if "log_rho" in arrays:
        real = acted[~arrays["first"][acted + 1, column]]
        log_rho = arrays["log_rho"][real, column]
        bottom.bar(real, log_rho, width=0.5)
        limit = 1.2 * max(1e-3, float(np.abs(log_rho).max(initial=0)))  # rounding is no news
        bottom.set_ylim(-limit, limit)
    bottom.axhline(0, color="black", linewidth=0.5)
    bottom.set(ylabel="log ρ", xlabel="row t")
    bottom.set_xticks(t)
    for name, colour in FLAGS.items():
        marked = [row for row in rows if arrays[name][row, column]]
        for axes in (top, middle, bottom):
            for row in marked:
                axes.axvline(row, color=colour, linestyle="--", linewidth=1.5)
        if marked:
            top.plot([], [], color=colour, linestyle="--", label=name)
    top.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9)
