"""What the chart's templates read of the experiment's schema: settings and agents."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticUndefined, to_jsonable_python

from seedbed.agents import AGENTS
from seedbed.config.environment import FAMILIES
from seedbed.config.keys import Key, agent_sections, keys
from seedbed.config.schema import Experiment
from seedbed.networks import NETWORK_OPTIONS


def experiment_schema() -> str:
    """Return `files/schema.json`: `settings`, `agents` and `networks`, one a line.

    A setting has its `class`, its `default`, the `reason` of an identity, and the `agent` or the
    `family` of environments that alone reads it. An agent has the properties that decide which
    pods fit it.
    """
    return (
        json.dumps(
            {
                "settings": {key.path: _setting(key) for key in keys()},
                "agents": {name: _agent(name) for name in AGENTS},
                "networks": NETWORK_OPTIONS,
            },
            indent=1,
        )
        + "\n"
    )


def _setting(key: Key) -> dict[str, Any]:
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


def _agent(name: str) -> dict[str, bool]:
    options: Any = Experiment.model_fields[name].annotation
    return {"replay": options.trains_from_replay, "synchronous": options.synchronous}
