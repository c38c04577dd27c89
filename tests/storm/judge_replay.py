"""Reference for the service `Replay`, read off `replay.proto` and docs/security.md."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from seedbed.v1 import replay_pb2 as wire
from seedbed.v1.inference_pb2 import ArraySpec
from tests.storm import streams
from tests.storm.streams import INVALID, MISFIT, OK, Verdict, odd_floats, verdict

# The shard under attack, with the sequences of its first learner.
EXPONENT, CAPACITY = 0.7, 256
SPEC = {
    "observation": ArraySpec(shape=[3], dtype="float32"),
    "steps": 4,
    "burn_in": 2,
    "lookahead": 0,
    "frame_stack": 1,
    "state_size": 2,
    "environment": "storm",
    "actions": 2,
}
STEPS, FRAMES, TIMESTEPS, STATE, ACTIONS = 4, 7, 7, 2, 2
LARGEST, LARGEST_PRIORITY, MOST_DRAWS = 1e6, 1e9, 65536
LARGEST_STATE = 1e9
# key, scaled priority, version, age, reward, action, previous action, state, flags, frames
SAMPLE_BYTES = 4 * 8 + 4 * TIMESTEPS + 4 * (TIMESTEPS - 1) + 4 + 4 * STATE + FRAMES + 12 * FRAMES
REFUSED = (INVALID, MISFIT)


def _judge(kind: Any, messages: list[bytes], fits: Callable[[Any, int], bool | None]) -> Verdict:
    """Judge a Hello, and a stream of messages that `fits` accepts (None: either is right)."""
    if not messages:
        return verdict(INVALID)
    try:
        hello = wire.ReplayHello.FromString(messages[0])
    except DecodeError:
        return verdict(INVALID)
    if not hello_fits(hello):
        return verdict(*REFUSED)
    answers, unsure = 0, False
    for data in messages[1:]:
        try:
            message = kind.FromString(data)
        except DecodeError:
            return verdict(INVALID, answers=answers)
        right = fits(message, answers)
        if right is False:
            return verdict(INVALID, answers=answers)
        unsure |= right is None
        answers += 1
    return verdict(OK, *([INVALID] if unsure else []), answers=answers)


def hello_fits(hello: wire.ReplayHello) -> bool:
    bounds = (hello.max_abs_reward, hello.max_abs_observation)
    return (
        all(bound >= 0 and math.isfinite(bound) for bound in bounds)
        and min(hello.protocol_version, 1) >= max(hello.oldest_protocol_version, 1)
        and hello.priority_exponent == EXPONENT
        and hello.spec == wire.SequenceSpec(**SPEC)
    )


def judge_insert(messages: list[bytes]) -> Verdict:
    return _judge(wire.InsertRequest, messages, insert_fits)


def insert_fits(message: wire.InsertRequest, sequence: int) -> bool | None:
    e = message.environments
    if message.sequence != sequence or not 1 <= e <= CAPACITY:
        return False
    if message.stream_id >= 2**63 or message.chunk_index >= 2**63:
        return False
    if not (math.isfinite(message.version) and message.version >= 0):
        return False
    sizes = (12 * STEPS, FRAMES, 4 * TIMESTEPS, 4 * (TIMESTEPS - 1), 4, 4 * STATE, 4)
    if len(message.payload) != e * sum(sizes):
        return False
    parts, at = [], 0
    for size in sizes:
        parts.append(message.payload[at : at + e * size])
        at += e * size
    frames, flags, reward, action, previous, state, priority = parts
    for data, largest in ((frames, LARGEST), (reward, LARGEST), (state, LARGEST_STATE)):
        for number in struct.unpack(f"<{len(data) // 4}f", data):
            if not abs(number) <= largest:
                return False
    if any(not 0 <= number <= LARGEST_PRIORITY for number in struct.unpack(f"<{e}f", priority)):
        return False
    if any(flag > 15 for flag in flags):
        return False
    actions = struct.unpack(f"<{len(action) // 4}i", action)
    actions += struct.unpack(f"<{e}i", previous)
    if any(not -1 <= number < ACTIONS for number in actions):
        return False
    # Where nothing came before a stream, there was no action: -1 or 0.
    return None if -1 in actions else True


def judge_sample(messages: list[bytes]) -> Verdict:
    return _judge(wire.SampleRequest, messages, sample_fits)


def sample_fits(message: wire.SampleRequest, _: int) -> bool | None:
    count, rest = divmod(len(message.uniform), 8)
    if rest or not 1 <= count <= MOST_DRAWS:
        return False
    return all(0 <= number < 1 for number in struct.unpack(f"<{count}d", message.uniform))


def judge_prioritize(messages: list[bytes]) -> Verdict:
    return _judge(wire.PrioritizeRequest, messages, prioritize_fits)


def prioritize_fits(message: wire.PrioritizeRequest, sequence: int) -> bool | None:
    count, rest = divmod(len(message.key), 8)
    if message.sequence != sequence or rest or len(message.priority) != 4 * count:
        return False
    priorities = struct.unpack(f"<{count}f", message.priority)
    if any(not 0 <= number <= LARGEST_PRIORITY for number in priorities):
        return False
    if any(key < 0 for key in struct.unpack(f"<{count}q", message.key)):
        return False
    return True if count else None


def judge_state(messages: list[bytes]) -> Verdict:
    try:
        wire.GetStateRequest.FromString(messages[0])
    except DecodeError:
        return verdict(INVALID)
    return verdict(OK, answers=1)


# --- whether a reply is an answer ----------------------------------------------------------------


def is_stored(reply: bytes) -> bool:
    return not wire.InsertReply.FromString(reply).HasField("welcome")


def is_sample(reply: bytes) -> bool:
    """Tell whether a reply has sequences, each whole, drawn from what the judge lets in."""
    message = wire.SampleReply.FromString(reply)
    n = message.sequences
    if message.HasField("welcome"):
        return False
    right = len(message.payload) == n * SAMPLE_BYTES and (n > 0 or not message.total_priority > 0)
    rewards = message.payload[32 * n : (32 + 4 * TIMESTEPS) * n]
    values = struct.unpack(f"<{len(rewards) // 4}f", rewards)
    if not right or any(not abs(value) <= LARGEST for value in values):
        raise ValueError(f"a sample of {n} sequences has {len(message.payload)} bytes: {values}")
    return True


def is_prioritized(reply: bytes) -> bool:
    return not wire.PrioritizeReply.FromString(reply).HasField("welcome")


# --- streams to judge ----------------------------------------------------------------------------


def _hello(**changes: Any) -> wire.ReplayHello:
    spec = wire.SequenceSpec(**{**SPEC, **changes.pop("spec", {})})
    fields = {"protocol_version": 1, "oldest_protocol_version": 1, "learner": "storm"}
    return wire.ReplayHello(**{**fields, "spec": spec, "priority_exponent": EXPONENT, **changes})


def _payload(e: int, **changes: bytes) -> bytes:
    parts = {
        "frames": bytes(12 * STEPS * e),
        "flags": bytes(FRAMES * e),
        "reward": bytes(4 * TIMESTEPS * e),
        "action": bytes(4 * (TIMESTEPS - 1) * e),
        "previous": bytes(4 * e),
        "state": bytes(4 * STATE * e),
        "priority": struct.pack(f"<{e}f", *[1.0] * e),
    }
    return b"".join({**parts, **changes}.values())


def _insert(place: int, **changes: Any) -> wire.InsertRequest:
    fields = {"sequence": place, "stream_id": 7, "chunk_index": place, "environments": 1}
    return wire.InsertRequest(**{**fields, "payload": _payload(1), "version": 1.0, **changes})


def _sample(place: int, **changes: Any) -> wire.SampleRequest:
    return wire.SampleRequest(
        **{"request": place, "uniform": struct.pack("<3d", 0.0, 0.5, 0.99), **changes}
    )


def _prioritize(place: int, **changes: Any) -> wire.PrioritizeRequest:
    keys, priorities = struct.pack("<2q", 0, 10**6), struct.pack("<2f", 0.5, 2.0)
    fields = {"sequence": place, "incarnation": 1, "key": keys, "priority": priorities}
    return wire.PrioritizeRequest(**{**fields, **changes})


def _odd_insert(chance: random.Random, sequence: int) -> wire.InsertRequest:
    number = chance.choice((0, 1, 2, 257, 2**31, 2**32 - 1))
    large = chance.choice((0, 2**62, 2**63 - 1, 2**63, 2**64 - 1))
    actions = [chance.choice((0, 1, 2, -1, -2, 2**31 - 1)) for _ in range(TIMESTEPS - 1)]
    changes: list[dict[str, Any]] = [
        {"sequence": chance.choice((0, sequence, sequence + 1, large))},
        {"environments": number},
        {"stream_id": large},
        {"chunk_index": large},
        {"version": chance.choice((math.nan, math.inf, -1.0, 0.0, 5.0))},
        {"payload": _payload(1)[: chance.choice((0, 1, 100))] + chance.randbytes(3)},
        {"payload": _payload(1, frames=odd_floats(chance, 3 * STEPS))},
        {"payload": _payload(1, reward=odd_floats(chance, TIMESTEPS))},
        {"payload": _payload(1, state=odd_floats(chance, STATE))},
        {"payload": _payload(1, flags=chance.randbytes(FRAMES))},
        {"payload": _payload(1, action=struct.pack(f"<{len(actions)}i", *actions))},
        {"payload": _payload(1, previous=struct.pack("<i", actions[0]))},
        {"payload": _payload(1, priority=odd_floats(chance, 1))},
    ]
    return _insert(sequence, **chance.choice(changes))


def _odd_sample(chance: random.Random, sequence: int) -> wire.SampleRequest:
    odd = chance.choice((math.nan, math.inf, -0.1, 1.0, 1e-9, 0.999))
    changes: list[dict[str, Any]] = [
        {"uniform": struct.pack("<2d", 0.1, odd)},
        {"uniform": bytes(chance.choice((0, 7, 8, 8 * 64, 8 * MOST_DRAWS + 8)))},
        {"request": 2**64 - 1},
    ]
    return _sample(sequence, **chance.choice(changes))


def _odd_prioritize(chance: random.Random, sequence: int) -> wire.PrioritizeRequest:
    changes: list[dict[str, Any]] = [
        {"sequence": chance.choice((0, sequence, sequence + 1, 2**64 - 1))},
        {"key": struct.pack("<2q", -1, 2**63 - 1)},
        {"key": bytes(chance.choice((0, 7, 8, 24)))},
        {"priority": bytes(chance.choice((0, 3, 4, 12)))},
        {"priority": odd_floats(chance, 2)},
        {"incarnation": 2**64 - 1},
        {"key": b"", "priority": b""},
    ]
    return _prioritize(sequence, **chance.choice(changes))


def _odd_hello(chance: random.Random) -> wire.ReplayHello:
    number = chance.choice((0, 1, 2, 3, 2**31, 2**32 - 1))
    size = chance.choice(("steps", "burn_in", "lookahead", "frame_stack", "state_size", "actions"))
    frame = ArraySpec(
        shape=chance.choice(([3], [], [-1], [2**62, 2**62], [0], [1] * 40)),
        dtype=chance.choice(("float32", "", "object", "float32,i4", "V8")),
    )
    changes: list[dict[str, Any]] = [
        {"protocol_version": number},
        {"oldest_protocol_version": number},
        {"learner": "x" * chance.choice((0, 200)) + "\n\x1b[2J"},
        {"priority_exponent": chance.choice((math.nan, -1.0, 0.9, EXPONENT))},
        {"spec": {size: number}},
        {"spec": {"observation": frame}},
        {"spec": {"environment": "CartPole-v1"}},
    ]
    return _hello(**chance.choice(changes))


def _streams(right: Any, odd: Any) -> Callable[[random.Random], list[bytes]]:
    def make(chance: random.Random) -> list[bytes]:
        hello, case = _hello(), chance.randrange(7)
        messages = [right(i) for i in range(chance.randint(0, 4))]
        if case == 0:
            hello = _odd_hello(chance)
        elif case in (1, 2):
            messages.append(odd(chance, len(messages)))
        stream = [hello.SerializeToString()]
        stream += [message.SerializeToString() for message in messages]
        if case in (3, 4):
            return streams.mutated(stream, chance)
        return streams.reordered(stream, chance) if case == 5 else stream

    return make


insert_stream = _streams(_insert, _odd_insert)
sample_stream = _streams(_sample, _odd_sample)
prioritize_stream = _streams(_prioritize, _odd_prioritize)


def state_stream(chance: random.Random) -> list[bytes]:
    return [chance.randbytes(chance.choice((0, 0, 1, 2, 5, 30)))]
