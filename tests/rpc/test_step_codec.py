"""Step and Actions by hand: protobuf is the reference, for what it writes and for what it reads."""

from __future__ import annotations

import random
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from seedbed.rpc import step_codec
from seedbed.rpc.step_codec import Actions, Step
from seedbed.v1 import inference_pb2 as wire

SEQUENCES = (0, 1, 127, 128, 300, 2**32, 2**63 - 1, 2**64 - 1)
HandlerCallDetails = namedtuple("HandlerCallDetails", "method invocation_metadata")
SECONDS = (0.0, 0.25, 1e-12, float("inf"))


def step(sequence: int = 5, frames: int = 3, seconds: tuple[float, float] = (0.5, 0.25)) -> Step:
    pixels = np.random.default_rng(sequence % 97).integers(0, 256, (frames, 7, 7, 1), np.uint8)
    return Step(sequence, pixels.reshape(-1).data, bytes(4 * frames), b"\x08" * frames, *seconds)


def by_protobuf(message: Step) -> bytes:
    sequence, observation, *rest, environment_s, wait_s = message
    return wire.ActorMessage(
        step=wire.Step(
            sequence=sequence,
            observation=bytes(observation),
            reward=rest[0],
            flags=rest[1],
            environment_seconds=environment_s,
            wait_seconds=wait_s,
        )
    ).SerializeToString()


def told(message: Any) -> Any:
    """Something that can be compared: what is in a message, whatever it is made of."""
    if isinstance(message, wire.ActorMessage) and message.WhichOneof("message") == "step":
        message = message.step
    if isinstance(message, wire.LearnerMessage) and message.WhichOneof("message") == "actions":
        message = message.actions
    if isinstance(message, Actions | wire.Actions):
        return message.sequence, message.action
    if isinstance(message, Step | wire.Step):
        # NaN is not equal to itself.
        seconds = np.array([message.environment_seconds, message.wait_seconds], np.float32)
        return (
            message.sequence,
            bytes(message.observation),
            message.reward,
            message.flags,
            seconds.tobytes(),
        )
    # In whatever order its parts came.
    return message.SerializeToString(deterministic=True)


def outcome(read: Any, data: bytes) -> Any:
    try:
        return told(read(data))
    except DecodeError:
        return "no message"


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("frames", [1, 2, 3, 400])
def test_a_step_is_written_and_read_as_by_protobuf(sequence: int, frames: int) -> None:
    for environment_s in SECONDS:
        for wait_s in SECONDS:
            message = step(sequence, frames, (environment_s, wait_s))
            data = step_codec.write_actor_message(message)
            assert data == by_protobuf(message)
            assert told(step_codec.read_actor_message(data)) == told(message)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_actions_are_written_and_read_as_by_protobuf(sequence: int) -> None:
    for count in (1, 31, 32, 5000):
        message = Actions(sequence, np.arange(count, dtype=np.int32).tobytes())
        data = step_codec.write_learner_message(message)
        reference = wire.LearnerMessage(
            actions=wire.Actions(sequence=sequence, action=message.action)
        )
        assert data == reference.SerializeToString()
        assert step_codec.read_learner_message(data) == message


def test_the_frames_of_what_was_read_are_the_messages_own_bytes() -> None:
    data = step_codec.write_actor_message(step(frames=32))
    message = step_codec.read_actor_message(data)
    assert isinstance(message, Step)
    assert isinstance(message.observation, memoryview)
    assert message.observation.obj is data


def test_every_other_message_goes_through_protobuf() -> None:
    goodbye = wire.ActorMessage(goodbye=wire.Goodbye(reason="enough"))
    assert step_codec.read_actor_message(step_codec.write_actor_message(goodbye)) == goodbye
    notice = wire.LearnerMessage(notice=wire.Notice(sequence=3, reason="compiling"))
    assert step_codec.read_learner_message(step_codec.write_learner_message(notice)) == notice
    assert step_codec.read_actor_message(b"") == wire.ActorMessage()
    assert step_codec.read_learner_message(b"") == wire.LearnerMessage()


def test_another_order_and_fields_of_a_later_version_are_read_by_protobuf() -> None:
    parts = [b"\x08\x05", b"\x12\x02ab", b"\x1a\x01c", b"\x22\x01d", b"\x2d\0\0\0\x3f"]
    parts += [b"\x35\0\0\x80\x3e", b"\x3a\x03new", b"\x12\x02xy"]
    draw = random.Random(1)
    for _ in range(500):
        inner = b"".join(draw.sample(parts, draw.randrange(len(parts) + 1)))
        data = b"\x12" + bytes([len(inner)]) + inner
        for outer in (data, data + data, data + b"\x1a\0", b"\x1a\0" + data):
            assert outcome(step_codec.read_actor_message, outer) == outcome(
                wire.ActorMessage.FromString, outer
            )
            assert outcome(step_codec.read_learner_message, outer) == outcome(
                wire.LearnerMessage.FromString, outer
            )


@pytest.mark.parametrize(
    "data",
    [
        "12 8c 80 80 80 80 00 08 05 12 02 61 62 1a 01 63 22 01 64",  # all of it
        "12 11 08 05 12 82 80 80 80 80 00 61 62 1a 01 63 22 01 64",  # the frames
        "12 11 08 05 12 02 61 62 1a 81 80 80 80 80 00 63 22 01 64",  # the rewards
        "12 86 80 80 80 80 00 08 05 12 02 61 62",
        "12 0b 08 05 12 82 80 80 80 80 00 61 62",
    ],
)
def test_lengths_have_five_bytes_at_most(data: str) -> None:
    for read in (step_codec.read_actor_message, step_codec.read_learner_message):
        with pytest.raises(DecodeError):
            read(bytes.fromhex(data))


def test_frames_that_are_no_bytes_have_the_length_of_their_bytes() -> None:
    frames = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = step_codec.write_actor_message(Step(0, frames.data, bytes(8), bytes(2)))
    message = wire.ActorMessage.FromString(data)
    np.testing.assert_array_equal(np.frombuffer(message.step.observation, np.float32), range(6))


async def never(*_: object) -> None:
    raise AssertionError("no call is made")


def test_every_method_of_the_service_is_served() -> None:
    handler = step_codec.inference_handlers(never, never)
    for method in wire.DESCRIPTOR.services_by_name["Inference"].methods:
        details = HandlerCallDetails(f"/seedbed.v1.Inference/{method.name}", ())
        assert handler.service(details) is not None, method.name


def test_damaged_messages_are_what_they_are_to_protobuf() -> None:
    draw = random.Random(2)
    steps = [step_codec.write_actor_message(step(n, n % 3)) for n in (0, 4, 130)]
    actions = [step_codec.write_learner_message(Actions(n, bytes(4 * n))) for n in (0, 3, 40)]
    for _ in range(20_000):
        data = bytearray(draw.choice(steps + actions))
        for _ in range(draw.randrange(4)):
            data[draw.randrange(min(len(data), 12 if draw.random() < 0.7 else 999))] = (
                draw.randrange(256)
            )
        damaged = bytes(data[: draw.randrange(len(data) + 1)] if draw.random() < 0.3 else data)
        assert outcome(step_codec.read_actor_message, damaged) == outcome(
            wire.ActorMessage.FromString, damaged
        ), damaged
        assert outcome(step_codec.read_learner_message, damaged) == outcome(
            wire.LearnerMessage.FromString, damaged
        ), damaged
