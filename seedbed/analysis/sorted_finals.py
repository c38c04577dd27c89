"""The finals of each group, sorted: Figure 4 of Espeholt et al. 2020. It needs matplotlib."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.analysis.plots import height, line_style
from seedbed.runtime.files import replacing
from seedbed.runtime.text import counted

_LABEL_LETTERS = 40  # of a label with one beside it


def draw_sorted_finals(result: Mapping[str, Any], file: Path) -> None:
    """Draw the final of each run over its rank in its group, the best one first.

    Args:
        result: A comparison of `seedbed.sets.comparison.compare` that has finals.
        file: File to write.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    groups = result["groups"]
    columns = 1 if any(len(group["label"]) > _LABEL_LETTERS for group in groups) else 2
    size = (8.0, height(len(groups), columns))
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    axes = figure.subplots()
    for group in groups:
        finals = sorted(group["finals"].values(), reverse=True)
        lost = f", {group['lost']} lost" if group["lost"] else ""
        label = f"{group['label']}: {counted(len(finals), 'run')}{lost}"
        ranks = range(1, len(finals) + 1)
        # Equal finals are rings within rings.
        ring = 4 + 8 * (len(groups) - group["index"]) / len(groups)
        marks = {"marker": "o", "markersize": ring, "markerfacecolor": "none"}
        axes.plot(ranks, finals, **line_style(group["index"]), **marks, label=label)
    axes.set_xlabel("runs of a group, the best one first")
    axes.set_ylabel(f"final: {result['scale']} at {result['horizon']:,.0f} frames")
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=columns, fontsize=10 if columns == 2 else 7)
    with replacing(file) as temporary:
        figure.savefig(temporary)
