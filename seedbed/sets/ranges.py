"""Ranges of values, and what is drawn from them."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Kind = Literal["uniform", "log_uniform", "int_uniform", "choice"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_FIGURES = 4  # of a number that is drawn


@dataclass(frozen=True)
class Range:
    """What a setting is drawn from.

    Attributes:
        kind: `uniform` and `log_uniform` draw numbers, of four figures; `int_uniform` draws
            integers, both ends included; `choice` draws one of the values.
        values: The two ends, the values themselves and not their logarithms; of `choice`, any
            plain data.
    """

    kind: Kind
    values: tuple[Any, ...]

    def draw(self, key: str, seed: int, number: int) -> Any:
        """Return a value that the arguments alone determine.

        So a draw stays as it is when other keys, or more draws, are added.

        Args:
            key: Path of the setting.
            seed: Of the set.
            number: Of the draw, from 0.
        """
        part = hashlib.sha256(f"{seed} {number} {key}".encode()).digest()[:8]
        fraction = (int.from_bytes(part) >> 11) / 2**53  # [0, 1), as a random generator makes it
        if self.kind == "choice":
            return self.values[int(fraction * len(self.values))]
        low, high = self.values
        if self.kind == "int_uniform":
            return low + int(fraction * (high - low + 1))
        if self.kind == "uniform":
            value = low + fraction * (high - low)
        else:
            value = math.exp(math.log(low) + fraction * (math.log(high) - math.log(low)))
        return min(max(float(f"{value:.{_FIGURES - 1}e}"), low), high)

    @property
    def text(self) -> str:
        """The range in words, for a plan."""
        if self.kind == "choice":
            return f"one of {', '.join(map(str, self.values))}"
        low, high = self.values
        return f"{self.kind} from {low:g} to {high:g}"


def is_range(value: Any) -> bool:
    """Return whether a value has the form of a range: a mapping whose only key is a kind."""
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in KINDS


def holds_range(value: Any) -> bool:
    """Return whether a value is a range, or a list or a mapping with one in it."""
    if is_range(value):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and any(map(holds_range, inner))


def read_range(value: dict[str, Any]) -> Range:
    """Return the range that a value describes, such as `{log_uniform: [1e-5, 1e-2]}`.

    Args:
        value: A mapping for which `is_range` holds.

    Raises:
        ValueError: An end is no finite number, or is not below the other one; both are named.
    """
    kind = next(one for one in KINDS if one in value)
    given = value[kind]
    if kind == "choice":
        if not isinstance(given, list) or not given:
            raise ValueError(f"choice takes a list of values, given {given!r}")
        return Range("choice", tuple(given))
    if not isinstance(given, list) or len(given) != 2:
        raise ValueError(f"{kind} takes two ends, [low, high], given {given!r}")
    _check_ends(kind, given)
    low, high = given
    return Range(kind, (low, high) if kind == "int_uniform" else (float(low), float(high)))


def _check_ends(kind: str, ends: Sequence[Any]) -> None:
    low, high = ends
    given = f"given [{low}, {high}]"
    wanted = int if kind == "int_uniform" else int | float
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, wanted):
            noun = "integers" if kind == "int_uniform" else "numbers"
            raise ValueError(f"the ends of {kind} are {noun}, {given}")
        if not math.isfinite(end):
            raise ValueError(f"the ends of {kind} are finite, {given}")
        if kind == "log_uniform" and end <= 0:
            raise ValueError(f"the ends of log_uniform are the values themselves, above 0, {given}")
    if low >= high:
        raise ValueError(f"{kind} takes the lower end first, {given}")
