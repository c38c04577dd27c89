"""Settings of an experiment as a flat list: leaves of the schema by their paths."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from seedbed.config.schema import Experiment


@dataclass(frozen=True)
class Key:
    """One setting: a leaf of the schema. A free-form mapping is one leaf.

    Attributes:
        path: Dotted path, such as `learner.optimizer.name`.
        field: Type, default, bounds and description.
    """

    path: str
    field: FieldInfo

    @property
    def description(self) -> str:
        """The sentence of the reference."""
        return " ".join((self.field.description or "").split())

    @property
    def resume(self) -> str:
        """Reason that a run cannot resume with another value; empty where it can."""
        extra = self.field.json_schema_extra
        return str(extra.get("resume", "")) if isinstance(extra, dict) else ""


def keys() -> list[Key]:
    """List every setting: keys of a section before its subsections."""
    return [
        Key(f"{section}.{name}".lstrip("."), field)
        for section, model in sections()
        for name, field in model.model_fields.items()
        if not is_section(field.annotation)
    ]


def sections(
    model: type[BaseModel] = Experiment, path: str = ""
) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the path and the class of every section, `model` first."""
    yield path, model
    for name, field in model.model_fields.items():
        if is_section(field.annotation):
            yield from sections(field.annotation, f"{path}.{name}".lstrip("."))


def is_section(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Tell whether the type of a field is a section.

    Args:
        annotation: Any type, as `FieldInfo.annotation` holds it.
    """
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
