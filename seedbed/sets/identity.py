"""What makes two runs the same: the settings that change the training, and nothing else."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

from seedbed.config import Experiment
from seedbed.config.keys import is_within, keys
from seedbed.config.without_effect import reason_of, without_effect
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
    return _digest(dict(differing(experiment, axes)))


def defaults_digest() -> str:
    """Return a digest of all defaults, which tells whether stored digests still hold."""
    kept = {path: value for path, value in _defaults().items() if path not in _INSTALLED}
    return _digest(kept)


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(as_json(values).encode()).hexdigest()[:_DIGITS]


def differing(experiment: Experiment, axes: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the settings of `digest`, with their values as plain data."""
    useless = list(without_effect(experiment))
    for key in keys():
        varies = any(is_within(axis, key.path) or is_within(key.path, axis) for axis in axes)
        if key.path in _NOT_OF_A_RUN or (
            not varies and (key.key_class is FREE or key.path in _INSTALLED)
        ):
            continue
        if reason_of(key.path, useless):
            continue
        value = plain(attrgetter(key.path)(experiment))
        if key.field.is_required() or not same(value, _defaults()[key.path]):
            yield key.path, value


@cache
def _defaults() -> dict[str, Any]:
    """Return today's defaults by key, as plain data."""
    return {
        key.path: plain(key.field.get_default(call_default_factory=True))
        for key in keys()
        if not key.field.is_required()
    }


def plain(value: Any) -> Any:
    """Return the value of a setting as plain data, as JSON has it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, tuple) else value


def same(one: Any, other: Any) -> bool:
    """Return whether values are the same setting: 1, 1.0 and true are three."""
    return as_json(one) == as_json(other)


def as_json(value: Any) -> str:
    """Return the one text of plain data, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True)
