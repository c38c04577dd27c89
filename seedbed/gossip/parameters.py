"""Parameters of a model as one flat buffer."""

import bisect
import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FlatParams = NDArray[np.float32]  # [d]


def norm_of(flat: FlatParams) -> float:
    """Return the 2-norm of a flat buffer [d]; infinite where float32 cannot hold its square."""
    with np.errstate(over="ignore"):
        return math.sqrt(float(np.dot(flat, flat)))


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of the parameters, in the order of the flat buffer."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def stops(self) -> list[int]:
        """Return the place in the flat buffer after each parameter."""
        return list(itertools.accumulate(math.prod(shape) for shape in self.shapes))

    @property
    def size(self) -> int:
        """Return d, the length of the flat buffer."""
        return self.stops[-1]

    def flatten(self, arrays: Sequence[NDArray[Any]]) -> FlatParams:
        """Copy the arrays, one after the other, into a new flat buffer [d]."""
        flat = np.empty(self.size, np.float32)
        for part, array in zip(self.split(flat), arrays, strict=True):
            part[...] = array
        return flat

    def split(self, flat: FlatParams) -> list[FlatParams]:
        """Return views of a flat buffer [d], in the shapes of the parameters."""
        parts = np.split(flat, self.stops[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def name_at(self, index: int) -> str:
        """Return the name of the parameter that holds an element.

        Args:
            index: Place of the element in the flat buffer.
        """
        return self.names[bisect.bisect(self.stops, index)]

    def digests(self) -> list[int]:
        """Return four bytes of a digest of each parameter's name and shape, as of `GossipHello`."""
        return [
            int.from_bytes(hashlib.sha256(f"{name} {list(shape)}".encode()).digest()[:4], "little")
            for name, shape in zip(self.names, self.shapes, strict=True)
        ]
