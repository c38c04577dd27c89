"""Between arrays and the messages of `replay.proto`. Both ends of the wire use it.

A message's `payload` is nearly all of its bytes. Messages are therefore put together and taken
apart here, around the payload: it is written by one copy, from where the arrays lie, and read by
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.rpc.varint import read_varint, write_varint
from seedbed.spec import ArraySpec
from seedbed.v1 import inference_pb2
from seedbed.v1 import replay_pb2 as wire

PAYLOAD = 15  # the field's number
# Of a payload: large enough that a message's own cost vanishes, small enough to be in flight a few
# times. A single sequence may be larger.
MESSAGE_BYTES = 4 * 1024 * 1024

_LENGTH_DELIMITED = 2
_TIMED = ("frames", "flags", "reward", "action")  # time-major [T, E] in a block
_M = TypeVar("_M", bound=Message)
Buffer = Any  # bytes, or an array that is contiguous


def pack(message: Message, payload: Iterable[Buffer]) -> bytes:
    """The bytes of a message and a payload, which is its last field."""
    pieces = [piece for piece in payload if len(piece)]
    size = sum(memoryview(piece).nbytes for piece in pieces)
    tag = PAYLOAD << 3 | _LENGTH_DELIMITED
    return b"".join((message.SerializeToString(), write_varint(tag), write_varint(size), *pieces))


def unpack(kind: type[_M], data: bytes) -> tuple[_M, memoryview]:
    """A message without its payload, and that.

    Raises:
        DecodeError: it is none.
    """
    view, rest, payload = memoryview(data), [], memoryview(b"")
    place = 0
    while place < len(view):
        tag, after = read_varint(view, place)
        end = _after_field(view, tag & 7, after)
        if end > len(view):
            raise DecodeError("a field is longer than its message")
        if tag >> 3 == PAYLOAD and tag & 7 == _LENGTH_DELIMITED:
            payload = view[read_varint(view, after)[1] : end]
        else:
            rest.append(view[place:end])
        place = end
    message = kind()
    message.ParseFromString(b"".join(rest))
    return message, payload


def _after_field(view: memoryview, wire_type: int, place: int) -> int:
    if wire_type == 0:
        return read_varint(view, place)[1]
    if wire_type == _LENGTH_DELIMITED:
        size, place = read_varint(view, place)
        return place + size
    if wire_type in (1, 5):
        return place + (8 if wire_type == 1 else 4)
    raise DecodeError(f"a field of wire type {wire_type}")


def spec_message(spec: SequenceSpec) -> wire.SequenceSpec:
    """A spec, for the wire."""
    frame = spec.observation
    return wire.SequenceSpec(
        observation=inference_pb2.ArraySpec(shape=frame.shape, dtype=frame.dtype),
        steps=spec.steps,
        burn_in=spec.burn_in,
        lookahead=spec.lookahead,
        frame_stack=spec.frame_stack,
        state_size=spec.state_size,
        environment=spec.environment,
        actions=spec.actions,
    )


def spec_of(message: wire.SequenceSpec) -> SequenceSpec:
    """The spec that a message says.

    Raises:
        ValueError: it cannot be.
    """
    shape, dtype = tuple(message.observation.shape), message.observation.dtype
    try:
        known = np.dtype(dtype).name == dtype and not np.dtype(dtype).hasobject
    except TypeError:
        known = False
    if not known or any(size < 1 for size in shape):
        raise ValueError(f"frames of {dtype!r}{list(shape)} cannot be")
    if message.steps < 1 or message.frame_stack < 1:
        raise ValueError(
            f"{message.steps} steps with frame stack {message.frame_stack}: both must be at least 1"
        )
    return SequenceSpec(
        ArraySpec(shape, dtype),
        steps=message.steps,
        burn_in=message.burn_in,
        lookahead=message.lookahead,
        frame_stack=message.frame_stack,
        state_size=message.state_size,
        environment=message.environment,
        actions=message.actions,
    )


def block_arrays(spec: SequenceSpec) -> dict[str, ArraySpec]:
    """Of one environment of a block, in the order of `InsertRequest.payload`."""
    arrays = spec.arrays()
    names = (*_TIMED, "previous_action", "state")
    return {**{name: arrays[name] for name in names}, "priority": ArraySpec((), "float32")}


def block_bytes(spec: SequenceSpec) -> int:
    """Bytes of one environment of a block."""
    return sum(array.row_bytes for array in block_arrays(spec).values())


def insert_request(
    spec: SequenceSpec, block: SequenceChunk, which: slice, chain: int, sequence: int
) -> bytes:
    """Some columns of a block, as a chain of their own."""
    message = wire.InsertRequest(
        sequence=sequence,
        chain=chain,
        number=block.number,
        environments=len(block.priority[which]),
        version=block.version,
    )
    # Rows of the frames lie together: one copy, out of the block and into the message.
    pieces: list[Buffer] = list(block.frames[:, which])
    if pieces and not pieces[0].flags.c_contiguous:
        pieces = [np.ascontiguousarray(block.frames[:, which])]
    for name in block_arrays(spec):
        if name == "frames":
            continue
        array = getattr(block, name)
        pieces.append(np.ascontiguousarray(array[:, which] if name in _TIMED else array[which]))
    return pack(message, pieces)


def block_of(spec: SequenceSpec, message: wire.InsertRequest, payload: memoryview) -> SequenceChunk:
    """The block of an `InsertRequest`; its arrays are the payload.

    Raises:
        ValueError: the payload has the wrong size.
    """
    e = message.environments
    if not (e > 0 and message.chain < 2**63 and message.number < 2**63):
        raise ValueError(f"{e} environments, chain {message.chain}, number {message.number}")
    shapes = {
        name: ((array.shape[0], e, *array.shape[1:]) if name in _TIMED else (e, *array.shape),
               array.dtype)
        for name, array in block_arrays(spec).items()
    }  # fmt: skip
    arrays = _split(payload, shapes, f"a block of {e} environments")
    return SequenceChunk(message.chain, message.number, **arrays, version=message.version)


def sample_arrays(spec: SequenceSpec) -> dict[str, ArraySpec]:
    """Of one sequence, in the order of `SampleReply.payload`."""
    arrays, key, number = spec.arrays(), ArraySpec((), "int64"), ArraySpec((), "float64")
    return {
        "key": key,
        "weight": number,
        "version": number,
        "age": number,
        **{name: arrays[name] for name in ("reward", "action", "previous_action", "state")},
        "flags": arrays["flags"],
        "frames": ArraySpec((spec.frames, *spec.observation.shape), spec.observation.dtype),
    }


def sequences_a_message(spec: SequenceSpec) -> int:
    """Of a `SampleReply`, at most."""
    one = sum(array.row_bytes for array in sample_arrays(spec).values())
    return max(1, MESSAGE_BYTES // one)


def sample_reply(
    spec: SequenceSpec,
    message: wire.SampleReply,
    fields: dict[str, NDArray[Any]],
    frames: Sequence[NDArray[Any]],
) -> bytes:
    """Sequences that were drawn, from their `fields` and the pieces of their frames."""
    small = [np.ascontiguousarray(fields[name]) for name in sample_arrays(spec) if name != "frames"]
    return pack(message, [*small, *frames])


def sequences_of(
    spec: SequenceSpec, message: wire.SampleReply, payload: memoryview
) -> dict[str, NDArray[Any]]:
    """The arrays [n, ...] of a `SampleReply`, which are the payload.

    Raises:
        ValueError: the payload has the wrong size.
    """
    n = message.sequences
    shapes = {name: ((n, *array.shape), array.dtype) for name, array in sample_arrays(spec).items()}
    return _split(payload, shapes, f"a reply of {n} sequences")


def _split(
    payload: memoryview, shapes: dict[str, tuple[tuple[int, ...], str]], what: str
) -> dict[str, NDArray[Any]]:
    sizes = {
        name: int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        for name, (shape, dtype) in shapes.items()
    }
    if sum(sizes.values()) != len(payload):
        raise ValueError(f"{what} has {sum(sizes.values())} bytes, and {len(payload)} came")
    arrays, place = {}, 0
    for name, (shape, dtype) in shapes.items():
        count = sizes[name] // np.dtype(dtype).itemsize
        flat = np.frombuffer(payload[place : place + sizes[name]], dtype, count)
        arrays[name] = flat.reshape(shape)
        place += sizes[name]
    return arrays
