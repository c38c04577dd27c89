"""Spaces in the first message of an actor's stream, beyond one array and one discrete action."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seedbed.packed import ACTION_MASK, MAX_CATEGORIES, MAX_ENTRIES, MAX_NAME, Entry, PackedSpec
from seedbed.spec import ActionSpec, ArraySpec, EnvironmentSpec
from seedbed.v1 import inference_pb2 as wire

_DTYPES = ("bool", "uint8", "int32", "float32")
_AXES = 3
_KINDS: dict[str, wire.ActionKind] = {
    "multi_discrete": wire.ACTION_KIND_MULTI_DISCRETE,
    "continuous": wire.ACTION_KIND_CONTINUOUS,
}


def spaces_to_wire(spec: EnvironmentSpec) -> dict[str, Any]:
    """Return the fields of `Hello` for spaces; none of one array and one discrete action."""
    fields: dict[str, Any] = {}
    if spec.space is not None:
        fields = {"action_kind": _KINDS[spec.space.kind], "action_sizes": spec.space.sizes}
    if entries := entries_to_wire(spec.observation):
        fields["entries"] = entries
    return fields


def entries_to_wire(observation: ArraySpec) -> list[wire.ObservationEntry]:
    """Return the entries of a packed observation; none of a single array."""
    if not isinstance(observation, PackedSpec):
        return []
    return [
        wire.ObservationEntry(
            name=entry.name,
            array=wire.ArraySpec(shape=entry.array.shape, dtype=entry.array.dtype),
            categories=entry.categories,
        )
        for entry in observation.entries
    ]


def observation_from_wire(hello: wire.Hello) -> ArraySpec:
    """Return the observation of a `Hello` whose shape and dtype are judged already.

    Raises:
        ValueError: the entries do not fit each other, the size of the row, or `actions`.
    """
    single = ArraySpec(tuple(hello.observation.shape), str(np.dtype(hello.observation.dtype)))
    mask = ArraySpec((hello.actions,), "uint8")
    for entry in hello.entries:
        array = ArraySpec(tuple(entry.array.shape), entry.array.dtype)
        fits = array == mask and hello.action_kind != wire.ACTION_KIND_CONTINUOUS
        if entry.name == ACTION_MASK and not fits:
            raise ValueError(f"{ACTION_MASK} is {array} and not {mask}, one for each action")
    return with_entries(single, hello.entries)


def with_entries(single: ArraySpec, entries: Sequence[wire.ObservationEntry]) -> ArraySpec:
    """Return an observation with the entries of a message; the same one where there are none.

    Args:
        single: shape and dtype of the row.
        entries: as a peer sent them.

    Raises:
        ValueError: the entries do not fit each other, or the size of the row.
    """
    if not entries:
        return single
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"{len(entries)} entries, and at most {MAX_ENTRIES} are taken")
    names = [entry.name for entry in entries]
    if len(set(names)) < len(names) or not all(
        name.isprintable() and 0 < len(name) <= MAX_NAME for name in names
    ):
        raise ValueError(
            f"names of entries that are not {MAX_NAME} printable characters, each once"
        )
    for entry in entries:
        shape = list(entry.array.shape)
        if entry.array.dtype not in _DTYPES or len(shape) > _AXES or min(shape, default=1) < 1:
            raise ValueError(f"{entry.name}: {entry.array.dtype}{shape} is no array of an entry")
        if entry.categories and entry.array.dtype != "int32":
            raise ValueError(f"{entry.name}: categories of {entry.array.dtype}, not int32")
        if entry.categories > MAX_CATEGORIES:
            raise ValueError(f"{entry.name}: {entry.categories} categories, above {MAX_CATEGORIES}")
    packed = PackedSpec.of(
        [
            Entry(e.name, ArraySpec(tuple(e.array.shape), e.array.dtype), e.categories)
            for e in entries
        ]
    )
    if (packed.shape, packed.dtype) != (single.shape, single.dtype):
        raise ValueError(f"entries of {packed.shape[0]} bytes in a row of {single}")
    return packed


def space_from_wire(hello: wire.Hello) -> ActionSpec | None:
    """Return the action space of a `Hello`; None of a discrete one.

    Raises:
        ValueError: its kind is unknown, or its sizes do not fit `actions`.
    """
    if hello.action_kind == wire.ACTION_KIND_DISCRETE:
        return None
    kinds: dict[int, Any] = {number: name for name, number in _KINDS.items()}
    sizes = tuple(hello.action_sizes)
    if hello.action_kind not in kinds:
        raise ValueError(f"action_kind {hello.action_kind} is unknown")
    if not sizes or min(sizes) < 1 or sum(sizes) != hello.actions:
        raise ValueError(f"action_sizes {list(sizes)} do not sum to the {hello.actions} of actions")
    space = ActionSpec(kinds[hello.action_kind], sizes)
    if space.kind == "continuous" and len(sizes) != 1:
        raise ValueError(f"action_sizes {list(sizes)} of continuous actions are not one number")
    return space
