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


def _join_lines(schema: dict[str, Any]) -> None:
    """Put the descriptions of a JSON schema, which are docstrings, on one line each."""
    for setting in schema.get("properties", {}).values():
        if "description" in setting:
            setting["description"] = " ".join(setting["description"].split())


class Section(BaseModel):
    """Part of the experiment: immutable; the docstring below a setting is its description.

    Unknown keys, wrong types and numbers that are not finite are refused.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        json_schema_extra=_join_lines,
    )

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
