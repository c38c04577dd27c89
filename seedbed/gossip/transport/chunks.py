"""Conversion of arrays to a stream of messages, and back."""

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.gossip.parameters import FlatParams, ParameterLayout
from seedbed.runtime.text import printable
from seedbed.v1 import gossip_pb2 as wire

# Large enough that a message's own cost vanishes, small enough that several are in flight.
CHUNK_BYTES = 4 * 1024 * 1024


def _as_bytes(values: FlatParams) -> memoryview:
    return memoryview(values.view(np.uint8))  # type: ignore[arg-type]


def to_chunks(iteration: int, values: FlatParams) -> Iterator[wire.Chunk]:
    """Split parameters; the last chunk carries the checksum.

    Args:
        iteration: Local iteration.
        values: Parameters [d].
    """
    data = _as_bytes(values)
    for offset in range(0, len(data), CHUNK_BYTES):
        end = min(offset + CHUNK_BYTES, len(data))
        yield wire.Chunk(
            iteration=iteration,
            offset=offset,
            size=len(data),
            crc32=zlib.crc32(data) if end == len(data) else 0,
            payload=bytes(data[offset:end]),
        )


class ChunkAssembler:
    """Joins the chunks of one peer."""

    def __init__(self, layout: ParameterLayout) -> None:
        self._layout = layout
        self._values: FlatParams | None = None
        self._offset = self._iteration = 0

    def add(self, chunk: wire.Chunk) -> FlatParams | None:
        """Add the next chunk.

        Returns:
            The parameters [d] if the chunk completes them, else None.

        Raises:
            ValueError: The chunk is not the next one, the checksum is wrong, or a number is not
                finite.
        """
        size = 4 * self._layout.size
        if chunk.size != size:
            raise ValueError(f"a buffer of {chunk.size} bytes, and the parameters take {size}")
        if self._values is None:
            self._iteration, self._offset = chunk.iteration, 0
        if chunk.iteration != self._iteration or chunk.offset != self._offset:
            raise ValueError(
                f"byte {chunk.offset} of iteration {chunk.iteration}, where byte {self._offset} "
                f"of iteration {self._iteration} is next"
            )
        end = self._offset + len(chunk.payload)
        if not chunk.payload or end > size:
            raise ValueError(f"a chunk of {len(chunk.payload)} bytes at {self._offset} of {size}")
        if self._values is None:
            self._values = np.empty(size // 4, np.float32)
        _as_bytes(self._values)[self._offset : end] = chunk.payload
        self._offset = end
        if end < size:
            return None
        values, self._values = self._values, None
        found = zlib.crc32(_as_bytes(values))
        if found != chunk.crc32:
            raise ValueError(f"checksum {found:08x}, and the sender's is {chunk.crc32:08x}")
        if not np.isfinite(values).all():
            name = self._layout.name_at(int(np.flatnonzero(~np.isfinite(values))[0]))
            raise ValueError(f"{name} holds NaN or infinite numbers")
        return values


def state_to_wire(arrays: Mapping[str, NDArray[Any]]) -> Iterator[wire.FetchReply]:
    """Split the arrays, of any shape, of a whole state; an array is at least one message."""
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        for start in range(0, max(1, len(data)), CHUNK_BYTES):
            part = wire.FetchReply.Array(
                name=name,
                dtype=array.dtype.name,
                shape=array.shape,
                data=data[start : start + CHUNK_BYTES],
            )
            yield wire.FetchReply(arrays=[part])


def state_from_wire(parts: Iterable[wire.FetchReply.Array]) -> dict[str, NDArray[Any]]:
    """Join the output of `state_to_wire`.

    Raises:
        ValueError: An array has no such type or shape, or a number is not finite.
    """
    state: dict[str, NDArray[Any]] = {}
    for name, of_array in itertools.groupby(parts, lambda part: part.name):
        pieces = list(of_array)
        data = b"".join(piece.data for piece in pieces)
        try:
            array = np.frombuffer(data, pieces[0].dtype).reshape(tuple(pieces[0].shape))
        except TypeError as error:
            raise ValueError(str(error)) from error
        if not np.isfinite(array).all():
            raise ValueError(f"{printable(name)} holds NaN or infinite numbers")
        state[name] = array
    return state
