"""A flat buffer as messages, and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from seedbed.gossip.layout import Flat, Layout
from seedbed.v1 import gossip_pb2 as wire

CHUNK_BYTES = 4 * 1024 * 1024  # a message's own cost vanishes, and a few are in flight at once


def as_bytes(values: Flat) -> memoryview:
    """The same memory, byte by byte."""
    return memoryview(values.view(np.uint8))  # type: ignore[arg-type]


def chunks(iteration: int, values: Flat) -> Iterator[wire.Chunk]:
    """The messages of a buffer, in order; the checksum is in the last one."""
    data = as_bytes(values)
    for offset in range(0, len(data), CHUNK_BYTES):
        end = min(offset + CHUNK_BYTES, len(data))
        yield wire.Chunk(
            iteration=iteration,
            offset=offset,
            size=len(data),
            crc32=zlib.crc32(data) if end == len(data) else 0,
            payload=bytes(data[offset:end]),
        )


class Assembly:
    """Puts a peer's chunks together."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._values: Flat | None = None
        self._at = 0
        self._iteration = 0

    def add(self, chunk: wire.Chunk) -> Flat | None:
        """Take the next chunk; return the buffer that it completes, if it does.

        Raises:
            ValueError: it does not follow, the checksum is wrong, or a number is not finite.
        """
        size = 4 * self._layout.size
        if self._values is None:
            self._values, self._at, self._iteration = np.empty(size // 4, np.float32), 0, 0
            self._iteration = chunk.iteration
        if chunk.size != size:
            raise ValueError(f"a buffer of {chunk.size} bytes, and the parameters take {size}")
        if chunk.iteration != self._iteration or chunk.offset != self._at:
            raise ValueError(
                f"byte {chunk.offset} of iteration {chunk.iteration}, where byte {self._at} of "
                f"iteration {self._iteration} is next"
            )
        end = self._at + len(chunk.payload)
        if not chunk.payload or end > size:
            raise ValueError(f"a chunk of {len(chunk.payload)} bytes at {self._at} of {size}")
        as_bytes(self._values)[self._at : end] = chunk.payload
        self._at = end
        if end < size:
            return None
        values, self._values = self._values, None
        found = zlib.crc32(as_bytes(values))
        if found != chunk.crc32:
            raise ValueError(f"checksum {found:08x}, and the sender's is {chunk.crc32:08x}")
        if not np.isfinite(values).all():
            name = self._layout.name_at(int(np.flatnonzero(~np.isfinite(values))[0]))
            raise ValueError(f"{name} holds NaN or infinite numbers")
        return values
