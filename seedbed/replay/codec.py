"""Conversion between arrays and the messages of `replay.proto`, for both ends of the stream.

Nearly all bytes of a message are its `payload`. Messages are therefore written and read here by
hand around the payload: writing copies it once, from where the arrays lie, and reading does not
copy it at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from seedbed.replay.sequence import TIMED, UNTIMED, SequenceChunk, SequenceSpec, chunk_arrays
from seedbed.rpc.spaces import entries_to_wire, with_entries
from seedbed.rpc.step_codec import read_varint, write_varint
from seedbed.runtime.text import LONGEST
from seedbed.spec import ArraySpec
from seedbed.v1 import replay_pb2 as wire

# Field number of `payload`.
PAYLOAD = 15
# Payload bytes of a message: large enough that the cost of a message vanishes, small enough that
# several are under way at once. A single sequence may be larger.
MESSAGE_BYTES = 4 * 1024 * 1024

_LENGTH_DELIMITED = 2
_M = TypeVar("_M", bound=Message)


def pack(message: Message, payload: Iterable[Any]) -> list[Any]:
    """Serialize a message with a payload, which is its last field; return its pieces, not joined.

    Args:
        message: All fields but the payload.
        payload: Pieces of the payload: bytes, or contiguous arrays.
    """
    pieces = [piece for piece in payload if len(piece)]
    size = sum(memoryview(piece).nbytes for piece in pieces)
    tag = PAYLOAD << 3 | _LENGTH_DELIMITED
    return [message.SerializeToString(), write_varint(tag), write_varint(size), *pieces]


def unpack(kind: type[_M], data: Any) -> tuple[_M, memoryview]:
    """Parse a message; return it without its payload, and a view of the payload.

    Args:
        kind: Class of the message.
        data: Serialized message: bytes, or an array of bytes.

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
    row = ArraySpec(spec.observation.shape, spec.observation.dtype)
    entries = entries_to_wire(spec.observation)
    return wire.SequenceSpec(**asdict(replace(spec, observation=row)), entries=entries)


def spec_of(message: wire.SequenceSpec) -> SequenceSpec:
    """Convert a message to its spec.

    Raises:
        ValueError: A dtype, a shape, a size or an entry is impossible.
    """
    shape, dtype = tuple(message.observation.shape), message.observation.dtype
    try:
        # Booleans, integers and floats, whose numbers can be judged.
        known = np.dtype(dtype).name == dtype and np.dtype(dtype).kind in "biuf"
    except (TypeError, ValueError, SyntaxError):
        known = False
    if not known or any(size < 1 for size in shape):
        raise ValueError(f"frames of {dtype!r}{list(shape)} cannot be")
    if len(message.environment) > LONGEST:
        raise ValueError(
            f"an environment's name of {len(message.environment)} characters: at most {LONGEST}"
        )
    if message.steps < 1 or message.frame_stack < 1:
        raise ValueError(
            f"{message.steps} steps with frame stack {message.frame_stack}: both must be at least 1"
        )
    _, *sizes = (field.name for field in fields(SequenceSpec))
    observation = with_entries(ArraySpec(shape, dtype), message.entries)
    return SequenceSpec(observation, **{name: getattr(message, name) for name in sizes})


def chunk_bytes(spec: SequenceSpec) -> int:
    """Return the bytes of one environment of a chunk."""
    return sum(array.row_bytes for array in chunk_arrays(spec, 1).values())


def insert_request(chunk: SequenceChunk, envs: slice, stream_id: int, sequence: int) -> list[Any]:
    """Serialize some environments of a chunk, as a stream of their own; return the pieces.

    Args:
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
    arrays = [*chunk.frames[:, envs]]
    arrays += [getattr(chunk, name)[:, envs] for name in TIMED[1:]]
    arrays += [getattr(chunk, name)[envs] for name in (*UNTIMED, "priority")]
    return pack(message, map(np.ascontiguousarray, arrays))


def chunk_of(spec: SequenceSpec, message: wire.InsertRequest, payload: memoryview) -> SequenceChunk:
    """Return the chunk of an `InsertRequest`. Its frames may be a view of the payload.

    Numbers that are judged are copies, because memory that the learner shares may change.

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
    arrays = _split(payload, chunk_arrays(spec, e), f"a chunk of {e} environments")
    for name in arrays:
        if name != "frames" or spec.observation.floats(arrays[name]):
            arrays[name] = arrays[name].copy()
    return SequenceChunk(message.stream_id, message.chunk_index, **arrays, version=message.version)


def sample_arrays(spec: SequenceSpec, count: int) -> dict[str, ArraySpec]:
    """Return the arrays [n, ...] of sequences, in the order of `SampleReply.payload`.

    Args:
        spec: Sizes of a sequence.
        count: n.
    """
    number = ArraySpec((), "float64")
    arrays = {
        "key": ArraySpec((), "int64"),
        **dict.fromkeys(("scaled_priority", "version", "age"), number),
        **{name: spec.arrays()[name] for name in ("reward", "action", *UNTIMED, "flags")},
        "frames": ArraySpec((spec.frames, *spec.observation.shape), spec.observation.dtype),
    }
    return {name: ArraySpec((count, *one.shape), one.dtype) for name, one in arrays.items()}


def sequences_a_message(spec: SequenceSpec) -> int:
    """Return how many sequences a `SampleReply` holds at most."""
    return max(1, MESSAGE_BYTES // sequence_bytes(spec))


@lru_cache
def sequence_bytes(spec: SequenceSpec) -> int:
    """Return the bytes of one sequence of a `SampleReply`."""
    return sum(array.row_bytes for array in sample_arrays(spec, 1).values())


def sample_reply(
    spec: SequenceSpec,
    message: wire.SampleReply,
    fields: dict[str, NDArray[Any]],
    frames: Sequence[NDArray[Any]],
) -> list[Any]:
    """Serialize sequences that were drawn; return the pieces.

    Args:
        spec: Sizes of a sequence.
        message: The reply without its payload.
        fields: All arrays [n, ...] of `sample_arrays` but the frames, contiguous.
        frames: Contiguous pieces of the frames [n, F, *shape].
    """
    *names, _ = sample_arrays(spec, 1)
    return pack(message, [*(fields[name] for name in names), *frames])


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
    n = message.sequences
    return _split(payload, sample_arrays(spec, n), f"a reply of {n} sequences")


def _split(payload: memoryview, arrays: dict[str, ArraySpec], what: str) -> dict[str, NDArray[Any]]:
    """Cut a payload into arrays, without a copy."""
    size = sum(array.row_bytes for array in arrays.values())
    if size != len(payload):
        raise ValueError(f"{what} has {size} bytes, and {len(payload)} came")
    found, place = {}, 0
    for name, array in arrays.items():
        piece = payload[place : place + array.row_bytes]
        found[name] = np.frombuffer(piece, array.dtype).reshape(array.shape)
        place += array.row_bytes
    return found
