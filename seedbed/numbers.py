"""Numbers of other processes, judged once where they enter: sessions, shards and peers.

Each check names the field, the values that are allowed and the value that came. NaN passes no
comparison, so a range excludes NaN too.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import ALL_FLAGS

# Largest priority of a sequence. A larger one would take every draw.
MAX_PRIORITY = 1e9


class Bounds(NamedTuple):
    """Largest magnitudes of what an environment returns."""

    reward: float = 1e6
    observation: float = 1e6  # of floats; integers are bounded by their dtype


DEFAULT_BOUNDS = Bounds()


class InvalidNumbers(ValueError):
    """Numbers of another process that are not allowed.

    Attributes:
        field: name of the field.
        expected: the allowed values.
        received: the first value that is not allowed, and its index.
    """

    def __init__(self, field: str, expected: str, received: str) -> None:
        super().__init__(f"{field}: expected {expected}, received {received}")
        self.field, self.expected, self.received = field, expected, received


def check_magnitudes(field: str, values: NDArray[Any], largest: float) -> None:
    """Check that each value is from -largest to largest.

    Args:
        field: name for the error.
        values: floats of any shape, not empty.
        largest: positive.

    Raises:
        InvalidNumbers: a value is outside, infinite or NaN.
    """
    # As a Python float, because float16 would turn a large limit into infinity. `reduce` saves a
    # third of the time of `max` on a small array, which each step has.
    if not float(np.maximum.reduce(np.abs(values), axis=None)) <= largest:
        wrong = ~(np.abs(values.astype(np.float64)) <= largest)
        _reject(field, values, wrong, f"finite numbers of at most {largest:g}")


def check_range(field: str, values: NDArray[Any], low: float, high: float) -> None:
    """Check that each value is from low to high, both included.

    Args:
        field: name for the error.
        values: numbers of any shape, not empty.
        low: smallest allowed value.
        high: largest allowed value.

    Raises:
        InvalidNumbers: a value is outside, or NaN.
    """
    if not (values.max() <= high and values.min() >= low):
        _reject(field, values, ~((values >= low) & (values <= high)), f"{low:g} to {high:g}")


def check_flags(flags: NDArray[np.uint8]) -> None:
    """Check that flags have only bits of `StepFlag`.

    Args:
        flags: uint8 of any shape, not empty.

    Raises:
        InvalidNumbers: another bit is set.
    """
    if flags.max() > ALL_FLAGS:
        _reject("flags", flags, flags > ALL_FLAGS, f"bits below {ALL_FLAGS + 1}")


def check_number(field: str, value: float, low: float = 0.0, high: float = math.inf) -> None:
    """Check one number: finite, and from low to high.

    Raises:
        InvalidNumbers: the number is outside, infinite or NaN.
    """
    if not (low <= value <= high and math.isfinite(value)):
        limits = f"{low:g} or more" if math.isinf(high) else f"{low:g} to {high:g}"
        raise InvalidNumbers(field, f"a finite number, {limits}", f"{value:g}")


def _reject(field: str, values: NDArray[Any], wrong: NDArray[np.bool_], expected: str) -> None:
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    at = f" at {list(index)}" if index else ""
    raise InvalidNumbers(field, expected, f"{values[index]}{at}")
