"""What the chart knows of the experiment's keys, to compare two experiments before an upgrade."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticUndefined, to_jsonable_python

from seedbed.config.environment import FAMILIES
from seedbed.config.keys import Key, agent_sections, keys


def key_classes() -> str:
    """Return `files/key-classes.json`: each key that is not free, a line each.

    A key has its `class`, its `default`, the `reason` of an identity, and the `agent` or the
    `family` of environments that alone reads it.
    """
    lines = [
        f" {json.dumps(key.path)}: {json.dumps(_entry(key))}"
        for key in keys()
        if key.key_class.name != "free"
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _entry(key: Key) -> dict[str, Any]:
    default = key.field.get_default(call_default_factory=True)
    entry: dict[str, Any] = {
        "class": key.key_class.name,
        "default": None if default is PydanticUndefined else to_jsonable_python(default),
    }
    if key.key_class.reason:
        entry["reason"] = key.key_class.reason
    section, _, rest = key.path.partition(".")
    if section in agent_sections():
        entry["agent"] = section
    if section == "environment" and (family := rest.partition(".")[0]) in FAMILIES:
        entry["family"] = family
    return entry
