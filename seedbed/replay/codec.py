"""Conversion between arrays and the messages of `replay.proto`, for both ends of the stream.

Nearly all bytes of a message are its `payload`. Messages are therefore written and read here by
hand around the payload: writing copies it once, from where the arrays lie, and reading does not
copy it at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from seedbed.replay.sequence import TIMED, UNTIMED, SequenceChunk, SequenceSpec, chunk_shape
from seedbed.rpc.step_codec import read_varint, write_varint
from seedbed.spec import ArraySpec
from seedbed.v1 import inference_pb2
from seedbed.v1 import replay_pb2 as wire

# Field number of `payload`.
PAYLOAD = 15
# Payload bytes of a message: large enough that the cost of a message vanishes, small enough that
# several are under way at once. A single sequence may be larger.
MESSAGE_BYTES = 4 * 1024 * 1024

_LENGTH_DELIMITED = 2
# Fields of `SequenceSpec` with the same name in the message.
_SIZES = tuple(field.name for field in fields(SequenceSpec) if field.name != "observation")
_M = TypeVar("_M", bound=Message)
# bytes, or a contiguous array
Buffer = Any


def pack(message: Message, payload: Iterable[Buffer]) -> bytes:
    """Serialize a message with a payload, which is its last field.

    Args:
        message: All fields but the payload.
        payload: Pieces of the payload.
    """
    pieces = [piece for piece in payload if len(piece)]
    size = sum(memoryview(piece).nbytes for piece in pieces)
    tag = PAYLOAD << 3 | _LENGTH_DELIMITED
    return b"".join((message.SerializeToString(), write_varint(tag), write_varint(size), *pieces))


def unpack(kind: type[_M], data: bytes) -> tuple[_M, memoryview]:
    """Parse a message; return it without its payload, and a view of the payload.

    Args:
        kind: Class of the message.
        data: Serialized message.

    Raises:
        DecodeError: The bytes are not a message.
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
    """Convert a spec to its message."""
    frame, sizes = spec.observation, {name: getattr(spec, name) for name in _SIZES}
    observation = inference_pb2.ArraySpec(shape=frame.shape, dtype=frame.dtype)
    return wire.SequenceSpec(observation=observation, **sizes)


def spec_of(message: wire.SequenceSpec) -> SequenceSpec:
    """Convert a message to its spec.

    Raises:
        ValueError: A dtype, a shape or a size is impossible.
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
        ArraySpec(shape, dtype), **{name: getattr(message, name) for name in _SIZES}
    )


def chunk_arrays(spec: SequenceSpec) -> dict[str, ArraySpec]:
    """Return the arrays of one environment of a chunk, in the order of `InsertRequest.payload`.

    Args:
        spec: Sizes of a sequence.
    """
    arrays = spec.arrays()
    names = (*TIMED, *UNTIMED)
    return {**{name: arrays[name] for name in names}, "priority": ArraySpec((), "float32")}


def chunk_bytes(spec: SequenceSpec) -> int:
    """Return the bytes of one environment of a chunk.

    Args:
        spec: Sizes of a sequence.
    """
    return sum(array.row_bytes for array in chunk_arrays(spec).values())


def insert_request(
    spec: SequenceSpec, chunk: SequenceChunk, envs: slice, stream_id: int, sequence: int
) -> bytes:
    """Serialize some environments of a chunk, as a stream of their own.

    Args:
        spec: Sizes of a sequence.
        chunk: The whole chunk.
        envs: Indices of the environments.
        stream_id: Stream of these environments.
        sequence: Sequence number of the message in its gRPC stream.
    """
    message = wire.InsertRequest(
        sequence=sequence,
        stream_id=stream_id,
        chunk_index=chunk.chunk_index,
        environments=len(chunk.priority[envs]),
        version=chunk.version,
    )
    # The frames of one time step are contiguous: one copy, out of the chunk and into the message.
    pieces: list[Buffer] = list(chunk.frames[:, envs])
    if pieces and not pieces[0].flags.c_contiguous:
        pieces = [np.ascontiguousarray(chunk.frames[:, envs])]
    for name in chunk_arrays(spec):
        if name == "frames":
            continue
        array = getattr(chunk, name)
        pieces.append(np.ascontiguousarray(array[:, envs] if name in TIMED else array[envs]))
    return pack(message, pieces)


def chunk_of(spec: SequenceSpec, message: wire.InsertRequest, payload: memoryview) -> SequenceChunk:
    """Return the chunk of an `InsertRequest`. Its arrays are views of the payload.

    Args:
        spec: Sizes of a sequence.
        message: The request without its payload.
        payload: Payload of the request.

    Raises:
        ValueError: A number is out of range, or the payload has the wrong size.
    """
    e = message.environments
    if not (e > 0 and message.stream_id < 2**63 and message.chunk_index < 2**63):
        raise ValueError(
            f"{e} environments, stream {message.stream_id}, chunk {message.chunk_index}"
        )
    specs = chunk_arrays(spec)
    shapes = {name: chunk_shape(name, array, e) for name, array in specs.items()}
    arrays = _split(payload, specs, shapes, f"a chunk of {e} environments")
    return SequenceChunk(message.stream_id, message.chunk_index, **arrays, version=message.version)


def sample_arrays(spec: SequenceSpec) -> dict[str, ArraySpec]:
    """Return the arrays of one sequence, in the order of `SampleReply.payload`.

    Args:
        spec: Sizes of a sequence.
    """
    arrays, key, number = spec.arrays(), ArraySpec((), "int64"), ArraySpec((), "float64")
    return {
        "key": key,
        "scaled_priority": number,
        "version": number,
        "age": number,
        **{name: arrays[name] for name in ("reward", "action", *UNTIMED)},
        "flags": arrays["flags"],
        "frames": ArraySpec((spec.frames, *spec.observation.shape), spec.observation.dtype),
    }


def sequences_a_message(spec: SequenceSpec) -> int:
    """Return how many sequences a `SampleReply` holds at most.

    Args:
        spec: Sizes of a sequence.
    """
    one = sum(array.row_bytes for array in sample_arrays(spec).values())
    return max(1, MESSAGE_BYTES // one)


def sample_reply(
    spec: SequenceSpec,
    message: wire.SampleReply,
    fields: dict[str, NDArray[Any]],
    frames: Sequence[NDArray[Any]],
) -> bytes:
    """Serialize sequences that were drawn.

    Args:
        spec: Sizes of a sequence.
        message: The reply without its payload.
        fields: All arrays [n, ...] of `sample_arrays` but the frames.
        frames: Contiguous pieces of the frames [n, F, *shape].
    """
    small = [np.ascontiguousarray(fields[name]) for name in sample_arrays(spec) if name != "frames"]
    return pack(message, [*small, *frames])


def sequences_of(
    spec: SequenceSpec, message: wire.SampleReply, payload: memoryview
) -> dict[str, NDArray[Any]]:
    """Return the arrays [n, ...] of a `SampleReply`, which are views of the payload.

    Args:
        spec: Sizes of a sequence.
        message: The reply without its payload.
        payload: Payload of the reply.

    Raises:
        ValueError: The payload has the wrong size.
    """
    n, arrays = message.sequences, sample_arrays(spec)
    shapes = {name: (n, *array.shape) for name, array in arrays.items()}
    return _split(payload, arrays, shapes, f"a reply of {n} sequences")


def _split(
    payload: memoryview,
    specs: dict[str, ArraySpec],
    shapes: dict[str, tuple[int, ...]],
    what: str,
) -> dict[str, NDArray[Any]]:
    """Cut a payload into arrays of these shapes, without a copy."""
    counts = {name: int(np.prod(shape, dtype=np.int64)) for name, shape in shapes.items()}
    sizes = {name: count * np.dtype(specs[name].dtype).itemsize for name, count in counts.items()}
    if sum(sizes.values()) != len(payload):
        raise ValueError(f"{what} has {sum(sizes.values())} bytes, and {len(payload)} came")
    arrays, place = {}, 0
    for name, shape in shapes.items():
        piece = payload[place : place + sizes[name]]
        arrays[name] = np.frombuffer(piece, specs[name].dtype, counts[name]).reshape(shape)
        place += sizes[name]
    return arrays
