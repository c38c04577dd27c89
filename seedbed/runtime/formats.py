"""Formats of numbers and tables for people: on the terminal, in the status, in Markdown."""

import string
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from typing_extensions import override

Number = float | int | str | None

NOTHING = "-"


def number(value: Number, digits: int = 0) -> str:
    """Format with thousands separated; "-" for None."""
    return NOTHING if value is None or isinstance(value, str) else f"{value:,.{digits}f}"


def significant(value: Number) -> str:
    """Format in three figures, or with all those before the point: 0.942, 21.0, 12,345."""
    if value is None or isinstance(value, str):
        return NOTHING
    size = f"{abs(value):.2e}"  # rounded first: 9.999 has one digit more than it seems
    exponent = int(size[size.index("e") + 1 :])
    return f"{value:,.{min(max(2 - exponent, 0), 5)}f}"


def si_number(value: Number) -> str:
    """Format in three or four figures: 999, 12.3K, 1.23M, 4.56G."""
    if value is None or isinstance(value, str):
        return NOTHING
    for unit, size in (("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(value) >= size:
            scaled = value / size
            return f"{scaled:.{2 if scaled < 10 else 1}f}{unit}"
    return f"{value:.0f}"


def money(value: Number) -> str:
    """Format US dollars, in cents from ten cents on, in four places below."""
    if value is None or isinstance(value, str):
        return NOTHING
    if value >= 0.1 or value == 0:
        return f"${value:,.2f}"
    return f"${value:.4f}" if value >= 0.0001 else "below $0.0001"


def duration(seconds: Number) -> str:
    """Format a duration: 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds is None or isinstance(seconds, str):
        return NOTHING
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def end(text: str | None, length: int) -> str:
    """Return the end of a long text, which names a run or an environment best."""
    if text is None:
        return NOTHING
    return text if len(text) <= length else f"...{text[3 - length :]}"


def percent(fraction: float | None) -> str:
    """Format a fraction of 1.

    Args:
        fraction: A share of 1; None is unknown.
    """
    return NOTHING if fraction is None else f"{100 * fraction:.0f} %"


_FORMATS: dict[str, Callable[[Any], str]] = {
    "n": number,
    "n1": partial(number, digits=1),
    "n2": partial(number, digits=2),
    "g4": lambda value: NOTHING if value is None else f"{value:.4g}",
    "si": si_number,
    "%": percent,
    "%5": lambda value: f"{percent(value):>5}",
    "%7": lambda value: f"{percent(value):>7}",
    "ms": lambda value: NOTHING if value is None else f"{value:,.1f} ms",
    "MB": lambda value: NOTHING if value is None else f"{value / 1e6:,.1f} MB",
    "GiB": lambda value: NOTHING if value is None else f"{value / 2**30:.3g} GiB",
    "$": money,
    "$3": lambda value: NOTHING if value is None else f"${significant(value)}",
    "end20": partial(end, length=20),
    "end26": partial(end, length=26),
    "time": duration,
    "ago": lambda value: "now" if value < 1 else f"{duration(value)} ago",
}


class _Format(string.Formatter):
    """Formats values by the names of `_FORMATS`; a value that is missing becomes "-"."""

    @override
    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (KeyError, IndexError, TypeError):
            return None, field_name

    @override
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("?"):
            return format_spec[1:] if value else ""
        if format_spec.startswith("!"):
            return "" if value else format_spec[1:]
        if known := _FORMATS.get(format_spec):
            return known(value)
        return NOTHING if value is None else format(value, format_spec)


def fill(template: str, *values: Mapping[str, Any]) -> str:
    """Fill a template such as "{env_frames:si} frames of {machine[cores]}"; see `_FORMATS`.

    "{goal:? of {goal:si}}" shows its text where the value is neither missing nor 0, and
    "{episodes:!none yet}" where it is.

    Args:
        template: Text with the names of values and their formats in braces.
        *values: Values by name; the later ones count.
    """
    merged = {name: value for part in values for name, value in part.items()}
    return _Format().vformat(template, (), merged)


def columns(rows: Sequence[Sequence[str] | str], align: str, between: str = "  ") -> str:
    """Return rows whose columns line up.

    Args:
        rows: Cells of each row; a text alone is a line that no column follows.
        align: A letter a column: `<` to the left, `>` to the right.
        between: Text between two columns.
    """
    cells = [row for row in rows if not isinstance(row, str)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in rows:
        if not isinstance(row, str):
            places = zip(row, align, widths, strict=True)
            row = between.join(f"{cell:{side}{width}}" for cell, side, width in places)
        lines.append(row.rstrip())
    return "\n".join(lines)
