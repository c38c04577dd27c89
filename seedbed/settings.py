"""Base class and field types of all settings: the sections of an experiment, an agent's options."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class KeyClass:
    """What another value of a setting means for a run that has begun.

    Every setting has one, as an annotation (`Annotated[int, RESULT]`) or by `Section.key_class`.

    Attributes:
        name: `identity`: the run cannot resume with another value. `result`: it can, but what the
            run measures changes, so that a person must accept the change. `free`: nothing that the
            run measures depends on it.
        reason: Why a setting of `identity` cannot change.
    """

    name: Literal["identity", "result", "free"]
    reason: str = ""


RESULT = KeyClass("result")
FREE = KeyClass("free")


def identity(reason: str) -> KeyClass:
    """Return the class of a setting with which a run resumes only as it was."""
    return KeyClass("identity", reason)


@dataclass(frozen=True)
class DefaultText:
    """Words of the reference for a default that depends on the machine, as an annotation."""

    text: str


SHAPES = identity("the parameters' shapes follow from it")
INPUT = identity("it sets the network's input shape")
REPEAT = identity("steps, frames and the discount's meaning follow from it")
ACTIONS = identity("it sets the number of actions and what each one does")


def pattern(names: Iterable[str]) -> str:
    """Return the regular expression of a setting that takes one of `names` or `module:Class`."""
    return rf"^({'|'.join(names)}|[\w.]+:\w+)$"


def one_of(names: Iterable[str], value: str) -> str:
    """Return `value` if `pattern` matches it.

    Raises:
        ValueError: `value` is neither one of `names` nor `module:Class`.
    """
    if not re.match(pattern(names), value):
        raise ValueError(f"unknown: one of {', '.join(names)}, or module:Class")
    return value


def join_lines(schema: dict[str, Any]) -> None:
    """Put the descriptions of a JSON schema, which are docstrings, on one line each."""
    for setting in schema.get("properties", {}).values():
        if "description" in setting:
            setting["description"] = " ".join(setting["description"].split())


_MOST_VALUES = 100_000  # of a free-form setting: aliases of YAML can stand for any number


def plain(value: Any, path: str = "", counted: Iterator[int] | None = None) -> Any:
    """Return a free-form value if files, processes and checkpoints keep it as it is.

    Args:
        value: Text, number, true, false, null, or lists and mappings of them.
        path: Where in the setting the value is.
        counted: Counts the values so far.

    Raises:
        ValueError: A part of it is anything else, with the part and what to write.
    """
    where = f"{path}: " if path else ""
    counted = counted or itertools.count(1)
    if next(counted) > _MOST_VALUES:
        raise ValueError(f"it has more than {_MOST_VALUES:,} values: keep them in a file")
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError(f"{where}{value} is kept by no file: leave it out, or write a text")
        return value
    if type(value) is list:
        return [plain(item, f"{path}[{i}]", counted) for i, item in enumerate(value)]
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                raise ValueError(f"{where}the key {key!r} is no text: write it in quotes")
        return {
            key: plain(item, f"{path}.{key}".lstrip("."), counted) for key, item in value.items()
        }
    raise ValueError(
        f"{where}{value!r} is a {type(value).__name__}: only texts, numbers, true, false, null, "
        "and lists and mappings of them are passed on as they are"
    )


# A section of free form: the same in the process that reads it and in all others.
Free = Annotated[dict[str, Any], BeforeValidator(plain)]


class Section(BaseModel):
    """A group of settings: immutable; the docstring below a setting is its description.

    Unknown keys, wrong types and numbers that are not finite are refused.

    Attributes:
        key_class: Class of the settings that are not annotated with one.
    """

    key_class: ClassVar[KeyClass | None] = None

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        json_schema_extra=join_lines,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _check_type(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse `true` and "16" as numbers and "yes" as a truth value; 2e8 is an integer."""
        wanted = cls.model_fields[str(info.field_name)].annotation
        if wanted is bool and not isinstance(value, bool):
            raise ValueError("must be true or false")
        if wanted in (int, float, float | None) and isinstance(value, bool | str):
            raise ValueError(f"must be {'an integer' if wanted is int else 'a number'}")
        return value
