"""The values of one key, as a command line or a sweep file writes them."""

from typing import Any

import yaml

from seedbed.config.yaml_text import load_yaml

_CLOSING = {"[": "]", "{": "}"}


def split_values(text: str) -> list[str]:
    """Split a text at the commas that are in no bracket and in no quotes.

    Brackets and quotes count where YAML begins a value: at the start of an item, or in a list or a
    mapping. `[64,64],[256,256]` has two items, `"a,b"` has one.

    Raises:
        ValueError: A bracket or a quote is not closed, or an item is empty.
    """
    items, begin, at = [], 0, 0
    closing: list[str] = []
    begins_value = True
    while at < len(text):
        letter = text[at]
        if begins_value and letter in "\"'":
            at = _end_of_quotes(text, at)
            begins_value = False
        elif begins_value and letter in _CLOSING:
            closing.append(_CLOSING[letter])
        elif closing and letter == closing[-1]:
            closing.pop()
            begins_value = False
        elif letter == "," and not closing:
            items.append(text[begin:at])
            begin, begins_value = at + 1, True
        elif letter in ",:" and closing:
            begins_value = True
        elif not letter.isspace():
            begins_value = False
        at += 1
    if closing:
        raise ValueError(f"{text!r} lacks {''.join(reversed(closing))!r} at its end")
    items.append(text[begin:])
    if len(items) > 1 and not all(item.strip() for item in items):
        raise ValueError(
            f"{text!r} has nothing between two commas, or at an end: write null or '' for such a "
            "value"
        )
    return items


def _end_of_quotes(text: str, at: int) -> int:
    """Return the place of the quote that closes the one at `at`."""
    quote, place = text[at], at + 1
    while place < len(text):
        if quote == '"' and text[place] == "\\":
            place += 1
        elif text[place] == quote:
            if quote == '"' or text[place + 1 : place + 2] != "'":
                return place
            place += 1  # '' is one quote in a text
        place += 1
    raise ValueError(f"{text!r} has a quote {quote} that is not closed")


def read_values(text: str) -> list[Any]:
    """Return the values of `a,b,c`: plain data.

    Raises:
        ValueError: As `split_values`; or an item is not YAML.
    """
    values = []
    for item in split_values(text):
        try:
            values.append(load_yaml(item))
        except yaml.YAMLError as error:
            raise ValueError(f"{item!r} is not YAML: {error}") from error
    return values
