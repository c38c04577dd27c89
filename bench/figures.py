"""Numbers that were measured several times: the median, and how far they lie apart."""

import logging
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from seedbed.runtime.exit_codes import SeedbedError

log = logging.getLogger(__name__)

Figures = Mapping[str, float]


def series(values: Sequence[float]) -> dict[str, Any]:
    """Return median, least and greatest of what was measured, and the values in their order."""
    return {
        "median": median(values),
        "min": min(values),
        "max": max(values),
        "values": list(values),
    }


def series_of(turns: Sequence[Figures]) -> dict[str, dict[str, Any]]:
    """Return the series of each figure."""
    return {name: series([turn[name] for turn in turns]) for name in turns[0]}


def in_turn(
    runs: int, sides: Mapping[str, Callable[[], Figures]], **ratios: tuple[str, str]
) -> dict[str, dict[str, Any]]:
    """Measure the sides one after the other (A B A B), and return the series of each figure.

    A ratio is of two figures of one turn, which were measured one after the other.

    Args:
        runs: Turns.
        sides: Measures one side, by the prefix of its figures' names.
        ratios: Names of the figures above and below the line, by the name of the ratio.
    """
    turns = []
    for _ in range(runs):
        turn = {
            f"{side}{name}": figure
            for side, measure in sides.items()
            for name, figure in measure().items()
        }
        turns.append(
            {name: turn[above] / turn[below] for name, (above, below) in ratios.items()} | turn
        )
    return series_of(turns)


def beside(
    runs: int,
    sides: Mapping[str, Callable[[], Figures]],
    compare: Callable[[Figures, Mapping[str, Figures]], Figures] = lambda own, turn: {},
) -> dict[str, dict[str, Any]]:
    """Measure the sides one after the other (A B A B); return the series of each one's figures.

    A side that fails, as one may on a busy machine, is left out of its turn, and so is one that has
    nothing to be compared with.

    Args:
        runs: Turns.
        sides: Measures one side, by its name.
        compare: From the figures of a side, and those of all sides in its turn, to ratios.
    """
    found: dict[str, list[Figures]] = {side: [] for side in sides}
    for number in range(runs):
        turn: dict[str, Figures] = {}
        for side, measure in sides.items():
            try:
                turn[side] = measure()
            except SeedbedError as error:
                log.error("%s is left out of turn %d: %s", side, number, error)
        for side, own in turn.items():
            try:
                found[side].append({**own, **compare(own, turn)})
            except KeyError as other:
                log.error("%s is left out of turn %d, which lacks %s", side, number, other)
    return {side: series_of(turns) for side, turns in found.items() if turns}


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the least squares line's slope of y over x."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    below = sum((a - mean_x) ** 2 for a in x)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / below if below else 0.0
