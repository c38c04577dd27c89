"""Fast path of the messages of every step: Step and Actions without protobuf objects.

The bytes are the ones of `inference.proto`. The reasons are copies and memory: a group of 32 Atari
environments sends messages of 226 KB, which protobuf copies twice more on either side. Its Python
runtime also gives free heap memory back (`malloc_trim`) after every 10,000 blocks of freed
messages, so that a learner with many streams pays for each unroll in page faults
(docs/measurements). Protobuf decodes every other message, and every Step or Actions that is
encoded in another form.
"""

import struct
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from seedbed.rpc.asyncio_server import stream_handler
from seedbed.v1 import inference_pb2 as wire

_SERVICE = "seedbed.v1.Inference"
ACT = f"/{_SERVICE}/Act"
# A field's tag: number << 3 | wire type.
_VARINT_1, _BYTES_2, _BYTES_3, _BYTES_4 = 0x08, 0x12, 0x1A, 0x22
_FLOAT_5, _FLOAT_6 = 0x2D, 0x35
_FLOAT = struct.Struct("<f")
# Bytes of a length. Other numbers may have ten.
_LONGEST_SIZE = 5


class Step(NamedTuple):
    """Message `Step` of the proto.

    A `memoryview` is flat and of bytes. Decoding returns a view of the message, which keeps the
    message in memory.
    """

    sequence: int
    observation: bytes | memoryview
    reward: bytes
    flags: bytes
    environment_seconds: float = 0.0
    wait_seconds: float = 0.0


class Actions(NamedTuple):
    """Message `Actions` of the proto."""

    sequence: int
    action: bytes


def act(channel: grpc.Channel | grpc.aio.Channel) -> Any:
    """Return the stub of `Act` for a client of these messages."""
    return channel.stream_stream(
        ACT,
        request_serializer=write_actor_message,
        response_deserializer=read_learner_message,
    )


def inference_handlers(
    serve: Callable[[Any], Awaitable[None]], status: Callable[[Any, Any], Awaitable[Any]]
) -> Any:
    """Return a server's handler of all methods of the service.

    Args:
        serve: serves a stream of `Act`.
        status: answers `GetStatus`.
    """
    act_handler = stream_handler(
        serve,
        request_deserializer=read_actor_message,
        response_serializer=write_learner_message,
    )
    status_handler = grpc.unary_unary_rpc_method_handler(
        status,
        request_deserializer=wire.GetStatusRequest.FromString,
        response_serializer=wire.GetStatusReply.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(
        _SERVICE, {"Act": act_handler, "GetStatus": status_handler}
    )


def kind_of(message: Step | Actions | wire.ActorMessage | wire.LearnerMessage) -> str | None:
    """Return the name of a message's `oneof` field, or None if none is set."""
    if isinstance(message, Step):
        return "step"
    if isinstance(message, Actions):
        return "actions"
    kind: str | None = message.WhichOneof("message")
    return kind


def write_actor_message(message: Step | wire.ActorMessage) -> bytes:
    """Encode an ActorMessage."""
    if not isinstance(message, Step):
        return message.SerializeToString()
    sequence, observation, reward, flags, environment_s, wait_s = message
    # As bytes, so that its length is the number of bytes.
    observation = memoryview(observation).cast("B")
    head = _number(sequence) + _sized(_BYTES_2, len(observation))
    tail = b"".join(
        (
            _sized(_BYTES_3, len(reward)),
            reward,
            _sized(_BYTES_4, len(flags)),
            flags,
            _float(_FLOAT_5, environment_s),
            _float(_FLOAT_6, wait_s),
        )
    )
    size = len(head) + len(observation) + len(tail)
    return b"".join((_sized(_BYTES_2, size), head, observation, tail))


def read_actor_message(data: bytes) -> Step | wire.ActorMessage:
    """Decode an ActorMessage. Its field `step` is returned as a `Step`.

    Raises:
        google.protobuf.message.DecodeError: the bytes are no ActorMessage.
    """
    try:
        return _read_step(data)
    except (IndexError, DecodeError):
        # Another form, another message, or no message: protobuf decides.
        pass
    message = wire.ActorMessage.FromString(data)
    if message.WhichOneof("message") != "step":
        return message
    return Step(*(getattr(message.step, name) for name in Step._fields))


def write_learner_message(message: Actions | wire.LearnerMessage) -> bytes:
    """Encode a LearnerMessage."""
    if not isinstance(message, Actions):
        return message.SerializeToString()
    sequence, action = message
    inner = b"".join((_number(sequence), _sized(_BYTES_2, len(action)), action))
    return _sized(_BYTES_2, len(inner)) + inner


def read_learner_message(data: bytes) -> Actions | wire.LearnerMessage:
    """Decode a LearnerMessage. Its field `actions` is returned as `Actions`.

    Raises:
        google.protobuf.message.DecodeError: the bytes are no LearnerMessage.
    """
    try:
        return _read_actions(data)
    except (IndexError, DecodeError):
        pass
    message = wire.LearnerMessage.FromString(data)
    if message.WhichOneof("message") != "actions":
        return message
    return Actions(message.actions.sequence, message.actions.action)


def write_varint(value: int) -> bytes:
    """Encode a number: seven bits a byte, the lowest bits first.

    Args:
        value: the number, from 0 to 2^64 - 1.
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """Decode the number at a place.

    Args:
        data: the message.
        place: index of the number's first byte.

    Returns:
        The number, and the place after it.

    Raises:
        DecodeError: the number has no end, or more than 64 bits.
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


def _number(sequence: int) -> bytes:
    # Protobuf does not send zeros.
    return bytes((_VARINT_1,)) + write_varint(sequence) if sequence else b""


def _sized(tag: int, size: int) -> bytes:
    return bytes((tag,)) + write_varint(size)


def _float(tag: int, value: float) -> bytes:
    return bytes((tag,)) + _FLOAT.pack(value) if value else b""


def _read_size(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a field, and where its content begins."""
    size, begin = read_varint(data, at)
    if begin - at > _LONGEST_SIZE or begin + size > len(data):
        raise DecodeError
    return size, begin


def _open(data: bytes) -> tuple[int, int]:
    """Return the sequence inside of field 2, the only field of the message, and the place after."""
    if data[0] != _BYTES_2:
        raise DecodeError
    size, at = _read_size(data, 1)
    if at + size != len(data):
        raise DecodeError
    if data[at] != _VARINT_1:
        return 0, at
    return read_varint(data, at + 1)


def _read_bytes(data: bytes, at: int, tag: int) -> tuple[int, int]:
    """Return begin and end of the content of the field at `at`, which must have this tag."""
    if data[at] != tag:
        raise DecodeError
    size, begin = _read_size(data, at + 1)
    return begin, begin + size


def _read_step(data: bytes) -> Step:
    """Decode the usual form; raise DecodeError or IndexError where protobuf must decide."""
    sequence, at = _open(data)
    begin, end = _read_bytes(data, at, _BYTES_2)
    observation = memoryview(data)[begin:end]
    begin, end = _read_bytes(data, end, _BYTES_3)
    reward = data[begin:end]
    begin, at = _read_bytes(data, end, _BYTES_4)
    flags = data[begin:at]
    environment_s = wait_s = 0.0
    if len(data) >= at + 5 and data[at] == _FLOAT_5:
        environment_s, at = _FLOAT.unpack_from(data, at + 1)[0], at + 5
    if len(data) >= at + 5 and data[at] == _FLOAT_6:
        wait_s, at = _FLOAT.unpack_from(data, at + 1)[0], at + 5
    if at != len(data):
        raise DecodeError
    return Step(sequence, observation, reward, flags, environment_s, wait_s)


def _read_actions(data: bytes) -> Actions:
    """Decode the usual form; raise DecodeError or IndexError where protobuf must decide."""
    sequence, at = _open(data)
    begin, end = _read_bytes(data, at, _BYTES_2)
    if end != len(data):
        raise DecodeError
    return Actions(sequence, data[begin:end])
