"""Parameters of a model as one flat buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.v1 import gossip_pb2 as wire

FlatParams = NDArray[np.float32]  # [d]


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of the parameters, in the order of the flat buffer."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Return d, the length of the flat buffer."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def flatten(self, arrays: Sequence[NDArray[Any]]) -> FlatParams:
        """Copy the arrays, one after the other, into a new flat buffer [d]."""
        flat = np.empty(self.size, np.float32)
        for part, array in zip(self.split(flat), arrays, strict=True):
            part[...] = array
        return flat

    def split(self, flat: FlatParams) -> list[FlatParams]:
        """Return views of a flat buffer [d], in the shapes of the parameters."""
        parts, start = [], 0
        for shape in self.shapes:
            stop = start + int(np.prod(shape))
            parts.append(flat[start:stop].reshape(shape))
            start = stop
        return parts

    def name_at(self, index: int) -> str:
        """Return the name of the parameter that holds the flat buffer's element `index`."""
        stops = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        return self.names[int(np.searchsorted(stops, index, side="right"))]

    def to_wire(self) -> list[wire.Parameter]:
        """Return the layout as a hello carries it."""
        return [
            wire.Parameter(name=name, shape=shape)
            for name, shape in zip(self.names, self.shapes, strict=True)
        ]

    def difference(self, other: Sequence[wire.Parameter]) -> str:
        """Describe the first difference to a peer's layout; empty if there is none."""
        for name, shape, theirs in zip(self.names, self.shapes, other, strict=False):
            if name != theirs.name:
                return f"parameter {name!r} here is {theirs.name!r} there"
            if list(shape) != list(theirs.shape):
                return f"{theirs.name} has shape {list(shape)} here and {list(theirs.shape)} there"
        if len(self.names) != len(other):
            return f"{len(self.names)} parameters here and {len(other)} there"
        return ""
