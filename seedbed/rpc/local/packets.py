"""Packets of local streams that every kind of stream has: the first and the last one."""

import struct

import grpc

from seedbed.rpc.stream import Metadata
from seedbed.rpc.streams import STATUS_LENGTH, status_code
from seedbed.rpc.versions import ERROR_KEY

Status = tuple[grpc.StatusCode, str, bytes]

# First byte of a packet. The client opens; both sides send messages; the client ends its side, and
# the server ends the stream with a status.
OPEN, MESSAGE, STEP, ACTIONS, DONE, END, LENT, ANSWER, FIRST_ANSWER = range(9)
# As much as gRPC's metadata may have; messages with large contents leave these in the memory.
LARGEST_PACKET = 64 * 1024

_METHOD_KEY = ":path"  # as HTTP/2 names it
_END_HEAD = struct.Struct("<BIH")  # status code, bytes of its message
_PAIR_HEAD = struct.Struct("<HH?")  # bytes of key and value, whether the value is text


class InvalidBlock(ValueError):
    """Shared memory, or part of it, that cannot be what a client shares."""


def open_packet(method: str, metadata: Metadata) -> bytes:
    """Return the first packet of a stream.

    Args:
        method: path of the method, as gRPC's.
        metadata: metadata of the call.
    """
    parts = [bytes((OPEN,))]
    for key, value in ((_METHOD_KEY, method), *metadata):
        name, data = key.encode(), value.encode() if isinstance(value, str) else value
        parts += [_PAIR_HEAD.pack(len(name), len(data), isinstance(value, str)), name, data]
    return b"".join(parts)


def opened_by(packet: bytes) -> tuple[str, Metadata]:
    """Return the method and the metadata of a first packet.

    Raises:
        ValueError: the packet is none.
    """
    if not packet or packet[0] != OPEN:
        raise ValueError(f"a first packet of {packet[:1]!r}")
    pairs: list[tuple[str, str | bytes]] = []
    at = 1
    try:
        while at < len(packet):
            key, value, is_text = _PAIR_HEAD.unpack_from(packet, at)
            at += _PAIR_HEAD.size
            if at + key + value > len(packet):
                raise ValueError("metadata is cut")
            name, content = packet[at : at + key].decode(), packet[at + key : at + key + value]
            pairs.append((name, content.decode() if is_text else content))
            at += key + value
    except struct.error as error:
        raise ValueError(f"metadata is cut: {error}") from error
    if not pairs or pairs[0][0] != _METHOD_KEY:
        raise ValueError("no method in a first packet")
    return str(pairs[0][1]), pairs[1:]


def end_packet(code: grpc.StatusCode, details: str = "", metadata: Metadata = ()) -> bytes:
    """Return the last packet of a stream.

    Args:
        code: status of the stream.
        details: its message, which is cut where it is too long.
        metadata: trailing metadata, of which only the error's is sent.
    """
    text = details.encode()[:STATUS_LENGTH]
    error = next((value for key, value in metadata if key == ERROR_KEY), b"")
    assert isinstance(error, bytes)
    return _END_HEAD.pack(END, code.value[0], len(text)) + text + error


def status_in(packet: bytes) -> Status:
    """Return code, message and error of a last packet.

    Raises:
        struct.error: the packet is cut.
    """
    _, number, size = _END_HEAD.unpack_from(packet)
    rest = packet[_END_HEAD.size :]
    return status_code(number), rest[:size].decode(errors="replace"), rest[size:]
