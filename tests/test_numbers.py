"""Numbers of other processes against an oracle that looks at each one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from seedbed.numbers import (
    InvalidNumbers,
    check_flags,
    check_magnitudes,
    check_number,
    check_range,
)

ODD = [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e6, -1e6, 1.0000001e6, 0.0, -0.0, 5.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("place", [0, 3, 5])
@pytest.mark.parametrize("value", ODD)
def test_one_bad_number_anywhere_is_found(dtype: type, place: int, value: float) -> None:
    values = np.linspace(-1, 1, 6).astype(dtype)
    with np.errstate(over="ignore"):
        values[place] = value
    given = float(values[place])  # as the dtype holds it
    if math.isfinite(given) and abs(given) <= 1e6:
        check_magnitudes("reward", values, 1e6)
        return
    with pytest.raises(InvalidNumbers, match=rf"^reward: expected .* at \[{place}\]$"):
        check_magnitudes("reward", values.reshape(6), 1e6)


@pytest.mark.parametrize("value", [-1, 0, 17, 18, 2**31 - 1, -(2**31)])
def test_an_action_is_from_the_space(value: int) -> None:
    actions = np.array([[0, 3], [value, 17]], np.int32)
    if 0 <= value <= 17:
        check_range("action", actions, 0, 17)
        return
    with pytest.raises(InvalidNumbers, match=r"0 to 17, received .* at \[1, 0\]"):
        check_range("action", actions, 0, 17)


@pytest.mark.parametrize("value", range(256))
def test_flags_have_four_bits(value: int) -> None:
    flags = np.array([0, value], np.uint8)
    if value < 16:
        check_flags(flags)
        return
    with pytest.raises(InvalidNumbers, match="flags: expected bits below 16"):
        check_flags(flags)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, -1e-9])
def test_a_count_is_finite_and_not_negative(value: float) -> None:
    check_number("dollars", 0.0)
    check_number("dollars", 1e300)
    with pytest.raises(InvalidNumbers, match=r"^dollars: expected a finite number, 0 or more"):
        check_number("dollars", value)
