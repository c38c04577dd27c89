"""Exploration of ε-greedy environments: each has a level of its own, from 0 to 1."""

import numpy as np
from numpy.typing import NDArray

# Beyond so many environments the levels begin again.
_SPREAD = 4096


def exploration_table(levels: int) -> NDArray[np.float32]:
    """Return ε by slot: 0.4^(1 + 7u) for the level u of a slot (SEED, Table 8).

    Args:
        levels: N different levels, u = i / (N - 1) for slot i, as in the table; a single one is
            0.4. With 0 the levels are 0, 1, 1/2, 1/4, 3/4, 1/8, 5/8 ...: as evenly spread over
            the slots that are taken, however many they are, since the lowest are taken first.

    Returns:
        [n] of slots 0 to n - 1; the slots after them begin again.
    """
    if levels:
        level = np.arange(levels) / max(1, levels - 1)
    else:
        level = np.concatenate([[0.0, 1.0], _halves(_SPREAD - 2)])
    table: NDArray[np.float32] = (0.4 ** (1.0 + 7.0 * level)).astype(np.float32)
    return table


def _halves(count: int) -> NDArray[np.float64]:
    """Return the sequence of van der Corput: 1/2, 1/4, 3/4, 1/8, 5/8, 3/8, 7/8 ..."""
    number, value, digit = np.arange(1, count + 1), np.zeros(count), 0.5
    while number.any():
        value += digit * (number % 2)
        number //= 2
        digit /= 2
    return value


def exploration_range(slots: NDArray[np.int32], levels: int) -> tuple[float, float]:
    """Return the lowest and the highest ε that environments hold.

    Args:
        slots: [n] slots of the environments, at least one.
        levels: as of `exploration_table`.
    """
    table = exploration_table(levels)
    held = table[slots % len(table)]
    return float(held.min()), float(held.max())
