"""Numbers that were measured several times: the median, and how far they lie apart."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any


def series(values: Sequence[float]) -> dict[str, Any]:
    """Return median, least and greatest of what was measured, and the values in their order."""
    return {
        "median": median(values),
        "min": min(values),
        "max": max(values),
        "values": list(values),
    }


def series_of(turns: Sequence[Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """Return the series of each figure.

    A ratio is of two figures of one turn, which were measured one after the other.
    """
    return {name: series([turn[name] for turn in turns]) for name in turns[0]}


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the least squares line's slope of y over x."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    below = sum((a - mean_x) ** 2 for a in x)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / below if below else 0.0
