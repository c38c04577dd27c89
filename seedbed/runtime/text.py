"""Words for people: counts with their nouns, texts of peers made safe to show, numbers in texts."""

import math
from typing import Any

LONGEST = 256
_LONGEST_TEXT = 16_384  # of a file: a path, a command, a reason


def printable(text: object, longest: int = LONGEST) -> str:
    """Escape what is not printable, and cut the result.

    Args:
        text: any object; its `str` counts.
        longest: characters of the result.
    """
    # One more character is enough to notice the cut, however long the text is.
    start = str(text)[: longest + 1]
    escaped = start if start.isprintable() else start.encode("unicode_escape").decode("ascii")
    return escaped if len(escaped) <= longest else escaped[: longest - 3] + "..."


def printable_texts(value: Any) -> Any:
    """Return a JSON value whose texts are printable, keys and values, such as of another's file.

    Args:
        value: the value.
    """
    if isinstance(value, str):
        return printable(value, _LONGEST_TEXT)
    if isinstance(value, dict):
        return {printable(key, _LONGEST_TEXT): printable_texts(one) for key, one in value.items()}
    if isinstance(value, list):
        return [printable_texts(one) for one in value]
    return value


def counted(number: int | str, noun: str) -> str:
    """Return a number and its noun: "1 episode", "2,000 episodes", "1.20M frames".

    Args:
        number: an integer, or a number that is formatted already.
        noun: singular, with a regular plural.
    """
    text = number if isinstance(number, str) else f"{number:,}"
    ending = "" if text == "1" else "es" if noun.endswith(("s", "ch")) else "s"
    return f"{text} {noun}{ending}"


def finite(text: str | None) -> float | None:
    """Return the number of a text; None where there is none, or no finite one."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None
