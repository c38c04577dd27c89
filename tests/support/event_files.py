"""A reader of TensorBoard's event files, from the formats alone: TFRecord and protobuf's wire."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Numbers of fields in event.proto, summary.proto and the HParams plugin's plugin_data.proto.
STEP, FILE_VERSION, SUMMARY, SESSION_LOG = 2, 3, 5, 7
EXPERIMENT, SESSION_START = 2, 3


@dataclass
class Event:
    """One event: scalars and texts by tag, and what plugins have, by plugin and tag."""

    step: int
    file_version: str = ""
    session_status: int = 0
    scalars: dict[str, float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    plugins: dict[tuple[str, str], bytes] = field(default_factory=dict)


def read_events(folder: Path) -> list[Event]:
    """All events of a folder, its files in the order of their names."""
    return [_event(record) for path in sorted(folder.iterdir()) for record in _records(path)]


def hyperparameters(content: bytes) -> dict[str, Any]:
    """Values by name of a `SessionStartInfo`."""
    found: dict[str, Any] = {}
    for entry in _all(_one(content, SESSION_START), 1):
        ((number, value),) = _fields(_one(entry, 2))  # 2 a number, 3 a text, 4 a truth value
        found[_one(entry, 1).decode()] = {
            2: lambda v: struct.unpack("<d", v)[0], 3: bytes.decode, 4: bool,
        }[number](value)  # fmt: skip
    return found


def experiment(content: bytes) -> tuple[list[str], list[str]]:
    """Names of the hyperparameters, and tags of the metrics, of an `Experiment`."""
    table = _one(content, EXPERIMENT)
    names = [_one(info, 1).decode() for info in _all(table, 4)]
    return names, [_one(_one(info, 1), 2).decode() for info in _all(table, 5)]


def _event(record: bytes) -> Event:
    fields = dict(_fields(record))
    event = Event(fields.get(STEP, 0), fields.get(FILE_VERSION, b"").decode())
    if SESSION_LOG in fields:
        event.session_status = _one(fields[SESSION_LOG], 1)
    for value in _all(fields.get(SUMMARY, b""), 1):
        parts = dict(_fields(value))
        tag = parts[1].decode()
        if 2 in parts:
            (event.scalars[tag],) = struct.unpack("<f", parts[2])
        if 9 in parts:  # metadata
            plugin = dict(_fields(_one(parts[9], 1)))
            event.plugins[plugin[1].decode(), tag] = plugin.get(2, b"")
        if 8 in parts:  # a tensor of texts
            event.texts[tag] = _one(parts[8], 8).decode()
    return event


def _records(path: Path) -> Iterator[bytes]:
    data, at = path.read_bytes(), 0
    while at < len(data):
        size, of_size = struct.unpack_from("<QI", data, at)
        record = data[at + 12 : at + 12 + size]
        (of_record,) = struct.unpack_from("<I", data, at + 12 + size)
        assert (of_size, of_record) == (_checksum(data[at : at + 8]), _checksum(record)), path
        yield record
        at += size + 16


def _checksum(data: bytes) -> int:
    """CRC-32C, rotated and offset as TFRecord has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, at = _varint(message, at)
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 0x80:
            return value, at


def _all(message: bytes, number: int) -> list[Any]:
    return [value for found, value in _fields(message) if found == number]


def _one(message: bytes, number: int) -> Any:
    (value,) = _all(message, number)
    return value
