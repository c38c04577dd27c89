"""What every section of an experiment has in common."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]


def pattern(names: tuple[str, ...]) -> str:
    """Of a key that takes one of these names, or a dotted path."""
    return rf"^({'|'.join(names)}|[\w.]+:\w+)$"


def one_of(names: tuple[str, ...], value: str) -> str:
    """The value, if the pattern has it.

    Raises:
        ValueError: it has not.
    """
    if not re.match(pattern(names), value):
        raise ValueError(f"unknown: one of {', '.join(names)}, or module:Class")
    return value


class Section(BaseModel):
    """A part of the experiment: immutable, and refusing unknown keys, wrong types and numbers
    that are not finite.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_type(cls, value: Any, info: ValidationInfo) -> Any:
        """`true` is no number, "16" neither, "yes" is no truth; but 2e8 is an integer."""
        wanted = cls.model_fields[str(info.field_name)].annotation
        if wanted is bool and not isinstance(value, bool):
            raise ValueError("must be true or false")
        if wanted in (int, float, float | None) and isinstance(value, bool | str):
            raise ValueError("must be a number")
        return value
