"""Packed observations: several named arrays as one row of bytes.

So the wire, frame stacks, unrolls, replay and device tables carry one array, whatever an
environment's observation space is. The network takes the row apart again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.spec import ActionSpec, ArraySpec, EnvironmentSpec

# A Hello names every entry, and is metadata of a call, of which gRPC takes 8 KiB.
MAX_ENTRIES, MAX_NAME = 64, 48
# A one-hot vector of more would be most of the network's first layer.
MAX_CATEGORIES = 2**15
# Entry that says which actions are valid: 1 for each valid action, 0 for the others.
ACTION_MASK = "action_mask"


@dataclass(frozen=True)
class Entry:
    """One array of a packed observation.

    Attributes:
        name: keys of a nested dictionary, joined by dots.
        array: shape and dtype. An array of bool is packed to bits.
        categories: of integers 0 .. categories-1, which networks take as one-hot vectors; 0 for
            numbers.
    """

    name: str
    array: ArraySpec
    categories: int = 0

    @property
    def is_bits(self) -> bool:
        """Whether eight numbers share a byte; the first one is its highest bit."""
        return self.array.dtype == "bool"

    @property
    def row_bytes(self) -> int:
        """Bytes in the row of one environment."""
        return (self.array.row_bytes + 7) // 8 if self.is_bits else self.array.row_bytes

    @property
    def is_image(self) -> bool:
        """Whether an image network takes the entry."""
        images = self.array.dtype in ("uint8", "bool") and len(self.array.shape) in (2, 3)
        return images and not self.categories

    def __str__(self) -> str:
        return f"{self.name} {self.array}" + f" below {self.categories}" * bool(self.categories)


@dataclass(frozen=True)
class PackedSpec(ArraySpec):
    """Spec of a packed observation: uint8 [bytes], the entries one after the other."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "PackedSpec":
        """Return the spec of some entries, in their order."""
        size = sum(entry.row_bytes for entry in entries)
        return cls((size,), "uint8", tuple(entries))

    @property
    def has_mask(self) -> bool:
        """Whether an entry says which actions are valid."""
        return any(entry.name == ACTION_MASK for entry in self.entries)

    def places(self) -> list[tuple[Entry, slice]]:
        """Return the entries, each with its bytes in a row."""
        stops = np.cumsum([entry.row_bytes for entry in self.entries]).tolist()
        starts = [0, *stops[:-1]]
        return [(e, slice(i, j)) for e, i, j in zip(self.entries, starts, stops, strict=True)]

    def pack(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        """Return the row of one environment.

        Args:
            arrays: of the shape and dtype of each entry, by name.
        """
        parts = []
        for entry in self.entries:
            flat = np.ascontiguousarray(arrays[entry.name], entry.array.dtype).reshape(-1)
            parts.append(np.packbits(flat) if entry.is_bits else flat.view(np.uint8))
        return np.concatenate(parts)

    def unpack(self, rows: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """Return the entries of rows [..., bytes], by name, each [..., *shape]."""
        lead, arrays = rows.shape[:-1], {}
        for entry, place in self.places():
            flat: NDArray[Any] = np.ascontiguousarray(rows[..., place])
            if entry.is_bits:
                flat = np.unpackbits(flat, axis=-1, count=entry.array.row_bytes)
            arrays[entry.name] = flat.view(entry.array.dtype).reshape((*lead, *entry.array.shape))
        return arrays

    @override
    def floats(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        arrays = self.unpack(array)
        return [arrays[e.name] for e in self.entries if e.array.dtype.startswith("float")]

    @override
    def to_json(self) -> list[dict[str, Any]]:
        return [
            {
                "name": entry.name,
                "shape": list(entry.array.shape),
                "dtype": entry.array.dtype,
                "categories": entry.categories,
            }
            for entry in self.entries
        ]

    @classmethod
    def from_json(cls, tree: Sequence[Mapping[str, Any]]) -> "PackedSpec":
        """Build a spec from what `to_json` returned."""
        return cls.of(
            [
                Entry(e["name"], ArraySpec(tuple(e["shape"]), e["dtype"]), e["categories"])
                for e in tree
            ]
        )

    @override
    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.entries)) + "}"


def random_actions(
    spec: EnvironmentSpec, observation: NDArray[Any], random: np.random.Generator
) -> NDArray[Any]:
    """Draw actions [E, *action] uniformly, from the valid ones where observations hold a mask.

    Args:
        spec: sizes of the environments.
        observation: the newest observations [E, *shape].
        random: source of the numbers.
    """
    num_envs = len(observation)
    if not isinstance(spec.observation, PackedSpec) or not spec.observation.has_mask:
        return spec.action.random(random, num_envs)
    mask = spec.observation.unpack(observation)[ACTION_MASK] != 0  # [E, A]
    parts = np.split(mask, np.cumsum(spec.action.sizes)[:-1], axis=-1)
    chosen = []
    for part in parts:
        valid = part | ~part.any(axis=-1, keepdims=True)  # all, where none is
        chosen.append(np.where(valid, random.random(part.shape), -1.0).argmax(axis=-1))
    return np.stack(chosen, axis=-1).reshape(num_envs, *spec.action.array.shape).astype(np.int32)


def read_environment_spec(tree: Mapping[str, Any]) -> EnvironmentSpec:
    """Build a spec from what `EnvironmentSpec.to_json` returned."""
    observation = ArraySpec(tuple(tree["observation_shape"]), tree["observation_dtype"])
    if "entries" in tree:
        observation = PackedSpec.from_json(tree["entries"])
    space = None
    if "space" in tree:
        space = ActionSpec(tree["space"]["kind"], tuple(tree["space"]["sizes"]))
    return EnvironmentSpec(tree["name"], observation, tree["actions"], tree["action_repeat"], space)
