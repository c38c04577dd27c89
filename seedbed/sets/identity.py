"""What makes two runs the same: the settings that change the training, and nothing else."""

import hashlib
import json
from collections.abc import Collection, Iterator
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

from seedbed.config import Experiment
from seedbed.config.keys import keys
from seedbed.config.without_effect import without_effect
from seedbed.settings import FREE

_DIGITS = 16
_NOT_OF_A_RUN = ("name",)
# Its default is what is installed, which can change below a set.
_INSTALLED = ("learner.backend",)


def digest(experiment: Experiment, axes: Collection[str] = ()) -> str:
    """Return the digest of a run: of its settings that differ from today's defaults.

    So a key that is written out at its default, a new key that has one, another order, name, path
    or price are the same run. Where a default has changed since a run began, that run, which
    records the old value, is another one. Settings without effect do not count.

    Args:
        experiment: Settings of the run.
        axes: Keys that vary in the set, which count whatever their class.
    """
    text = json.dumps(dict(differing(experiment, axes)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def defaults_digest() -> str:
    """Return a digest of all defaults, which tells whether stored digests still hold."""
    defaults = {
        key.path: plain(key.field.get_default(call_default_factory=True))
        for key in keys()
        if key.path not in _INSTALLED and not key.field.is_required()
    }
    text = json.dumps(defaults, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def differing(experiment: Experiment, axes: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the settings of `digest`, with their values as plain data."""
    useless = tuple(prefix for prefix, _ in without_effect(experiment))
    for key in keys():
        varies = any(_is_within(axis, key.path) or _is_within(key.path, axis) for axis in axes)
        if key.path in _NOT_OF_A_RUN or (
            not varies and (key.key_class is FREE or key.path in _INSTALLED)
        ):
            continue
        if any(_is_within(key.path, prefix) for prefix in useless):
            continue
        value = plain(attrgetter(key.path)(experiment))
        if key.field.is_required() or not same(
            value, plain(key.field.get_default(call_default_factory=True))
        ):
            yield key.path, value


def _is_within(path: str, section: str) -> bool:
    return path == section or path.startswith(f"{section}.")


def plain(value: Any) -> Any:
    """Return the value of a setting as plain data, as JSON has it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, tuple) else value


def same(one: Any, other: Any) -> bool:
    """Return whether values are the same setting: 1, 1.0 and true are three."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
