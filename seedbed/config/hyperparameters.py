"""The settings by which runs are compared: those on which a result depends, and that count."""

import json
from operator import attrgetter
from typing import Any

from seedbed.config.keys import is_section, keys
from seedbed.config.schema import Experiment
from seedbed.config.without_effect import without_effect
from seedbed.settings import FREE


def hyperparameters(experiment: Experiment) -> dict[str, str | float | bool]:
    """Return the settings of the classes `identity` and `result` that have an effect, by path.

    Runs of one agent and one kind of environment have the same paths. Lists and mappings are JSON;
    a setting that is null is left out.
    """
    idle = tuple(f"{prefix}." for prefix, _ in without_effect(experiment))
    found: dict[str, str | float | bool] = {}
    for key in keys():
        if key.key_class is FREE or f"{key.path}.".startswith(idle):
            continue
        value: Any = attrgetter(key.path)(experiment)
        if value is None or is_section(type(value)):
            continue
        found[key.path] = value if isinstance(value, str | int | float) else json.dumps(value)
    return found
