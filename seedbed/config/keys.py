"""Settings of an experiment as a flat list: leaves of the schema by their paths."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from seedbed.agents import AGENTS
from seedbed.config.schema import Experiment
from seedbed.settings import KeyClass


@dataclass(frozen=True)
class Key:
    """One setting: a leaf of the schema. A free-form mapping is one leaf.

    Attributes:
        path: Dotted path, such as `learner.optimizer.name`.
        field: Type, default, bounds and description.
        section: Section that declares the setting.
    """

    path: str
    field: FieldInfo
    section: type[BaseModel]

    @property
    def description(self) -> str:
        """The sentence of the reference."""
        return " ".join((self.field.description or "").split())

    @property
    def key_class(self) -> KeyClass:
        """Class of the setting.

        Raises:
            TypeError: The setting is declared without one.
        """
        declared = [item for item in self.field.metadata if isinstance(item, KeyClass)]
        declared += [c] if (c := getattr(self.section, "key_class", None)) else []
        if not declared:
            raise TypeError(f"{self.path} has no class: annotate it with RESULT, FREE or identity")
        return declared[0]


def keys() -> list[Key]:
    """List every setting: keys of a section before its subsections."""
    return [
        Key(f"{section}.{name}".lstrip("."), field, model)
        for section, model in sections()
        for name, field in model.model_fields.items()
        if not is_section(field.annotation)
    ]


def agent_sections() -> set[str]:
    """Return the sections that hold the options of one agent."""
    return set(AGENTS)


def sections(
    model: type[BaseModel] = Experiment, path: str = ""
) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the path and the class of every section, `model` first."""
    yield path, model
    for name, field in model.model_fields.items():
        if is_section(field.annotation):
            yield from sections(field.annotation, f"{path}.{name}".lstrip("."))


def is_within(path: str, section: str) -> bool:
    """Return whether a setting is a section itself, or below it."""
    return f"{path}.".startswith(f"{section}.")


def is_section(annotation: Any) -> TypeGuard[type[BaseModel]]:
    """Tell whether the type of a field is a section.

    Args:
        annotation: Any type, as `FieldInfo.annotation` holds it.
    """
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
