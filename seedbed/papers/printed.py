"""Figures as a paper prints them: `74K`, `$25`, `16.5k`, `17.97ms`, `2.5x`."""

import re

_FIGURE = re.compile(r"\$?(?P<number>[\d,]+(?:\.\d+)?)(?P<unit>[KkM]|ms|x)?")
_UNITS = {"K": 1e3, "k": 1e3, "M": 1e6}


def value_of(text: str) -> float | None:
    """Return the number that a figure stands for.

    Args:
        text: A figure in the paper's form; "" where the paper has none.

    Returns:
        Dollars, frames a second, milliseconds or a ratio, by the figure's unit; None for "".

    Raises:
        ValueError: The text is no figure.
    """
    if not text:
        return None
    found = _FIGURE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no figure such as 74K, $25, 17.97ms or 2.5x")
    return float(found["number"].replace(",", "")) * _UNITS.get(found["unit"] or "", 1.0)


def rounding_of(text: str) -> float:
    """Return half of a figure's last digit, in the unit of `value_of`: 500 for `74K`.

    Args:
        text: A figure in the paper's form.
    """
    found = _FIGURE.fullmatch(text)
    if found is None:
        return 0.0
    digits = len(found["number"].partition(".")[2])
    return 0.5 * 10.0**-digits * _UNITS.get(found["unit"] or "", 1.0)
