"""A model's parameters as one flat buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.v1 import gossip_pb2 as wire

Flat = NDArray[np.float32]  # [d]


@dataclass(frozen=True)
class Layout:
    """Names and shapes, in the buffer's order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """d, the numbers of the buffer."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    def flatten(self, arrays: Sequence[NDArray[Any]]) -> Flat:
        """New memory with all arrays, one after the other."""
        flat = np.empty(self.size, np.float32)
        for part, array in zip(self.split(flat), arrays, strict=True):
            part[...] = array
        return flat

    def split(self, flat: Flat) -> list[Flat]:
        """Views of the buffer, in the arrays' shapes."""
        parts, start = [], 0
        for shape in self.shapes:
            stop = start + int(np.prod(shape))
            parts.append(flat[start:stop].reshape(shape))
            start = stop
        return parts

    def name_at(self, index: int) -> str:
        """The parameter in which a number of the buffer lies."""
        for name, shape in zip(self.names, self.shapes, strict=True):
            index -= int(np.prod(shape))
            if index < 0:
                return name
        return "behind the end"

    def message(self) -> list[wire.Parameter]:
        """For a hello."""
        return [
            wire.Parameter(name=name, shape=shape)
            for name, shape in zip(self.names, self.shapes, strict=True)
        ]

    def difference(self, message: Sequence[wire.Parameter]) -> str:
        """The first difference to a peer's, in words; empty where there is none."""
        theirs = [(parameter.name, tuple(parameter.shape)) for parameter in message]
        ours = list(zip(self.names, self.shapes, strict=True))
        for (our_name, our_shape), (name, shape) in zip(ours, theirs, strict=False):
            if our_name != name:
                return f"parameter {our_name!r} here is {name!r} there"
            if our_shape != shape:
                return f"{name} has shape {list(our_shape)} here and {list(shape)} there"
        if len(ours) != len(theirs):
            return f"{len(ours)} parameters here and {len(theirs)} there"
        return ""
