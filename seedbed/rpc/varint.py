"""Protobuf's numbers of variable length, for messages that are put together by hand."""

from __future__ import annotations

from google.protobuf.message import DecodeError


def write_varint(value: int) -> bytes:
    """A number from 0 to 2^64 - 1, seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """A number, and the place after it.

    Raises:
        DecodeError: it has no end, or more than 64 bits.
    """
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, place
    raise DecodeError("a number has no end")
