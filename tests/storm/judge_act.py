"""Reference for `Inference.Act`: what a learner must answer to a stream, judged slowly.

The rules are read off `inference.proto` and docs/security.md, not off the learner's code: protobuf
decodes each message, and a loop looks at each number.
"""

from __future__ import annotations

import math
import random
import struct

import grpc
from google.protobuf.message import DecodeError

from seedbed.v1 import inference_pb2 as wire
from tests.storm import streams
from tests.storm.streams import FULL, INVALID, MISFIT, OK, Verdict, odd_floats, verdict

# CartPole-v1, as the learner under attack trains it.
ENVIRONMENT, SHAPE, DTYPE, ACTIONS, REPEAT = "CartPole-v1", [4], "float32", 2, 1
MOST_ENVIRONMENTS = 16  # learner.inference.max_batch_envs of the storm's experiment
LARGEST = 1e6
LONGEST_S = 1e6
TERMINATED, TRUNCATED, FIRST = 1, 2, 8


def judge(messages: list[bytes]) -> Verdict:
    """Judge a serialized Hello, and the ActorMessages of its stream, which then half-closes."""
    sequence = 0
    if not messages:
        return verdict(INVALID)  # a call without a Hello
    try:
        said = wire.Hello.FromString(messages[0])
    except DecodeError:
        return verdict(INVALID)
    if codes := judge_hello(said):
        return verdict(*codes)
    environments = said.environments
    fresh = [True] * environments
    for data in messages[1:]:
        try:
            message = wire.ActorMessage.FromString(data)
        except DecodeError:
            return verdict(INVALID, FULL, answers=sequence)
        kind = message.WhichOneof("message")
        if kind == "goodbye":
            return verdict(OK, FULL, answers=sequence)
        if kind != "step" or not judge_step(message.step, environments, sequence, fresh):
            return verdict(INVALID, FULL, answers=sequence)
        sequence += 1
    return verdict(OK, FULL, answers=sequence)


def judge_hello(hello: wire.Hello) -> tuple[grpc.StatusCode, ...]:
    """Return the right statuses of a Hello that is refused; empty if it is accepted."""
    if not hello.oldest_protocol_version <= 1 <= hello.protocol_version:
        return (MISFIT,)
    if hello.environment != ENVIRONMENT:
        return (MISFIT,)
    fits = (
        1 <= hello.environments <= MOST_ENVIRONMENTS
        and hello.actions == ACTIONS
        and hello.action_repeat == REPEAT
        and list(hello.observation.shape) == SHAPE
        and hello.observation.dtype == DTYPE
    )
    return () if fits else (INVALID,)


def judge_step(step: wire.Step, environments: int, sequence: int, fresh: list[bool]) -> bool:
    """Judge a step; `fresh` says of each environment whether FIRST must come, and follows it."""
    e = environments
    if step.sequence != sequence:
        return False
    if len(step.observation) != 16 * e or len(step.reward) != 4 * e or len(step.flags) != e:
        return False
    for seconds in (step.environment_seconds, step.wait_seconds):
        if not 0 <= seconds <= LONGEST_S:
            return False
    for number in struct.unpack(f"<{5 * e}f", step.observation + step.reward):
        if math.isnan(number) or abs(number) > LARGEST:
            return False
    for i, flags in enumerate(step.flags):
        if flags > 15 or (fresh[i] and not flags & FIRST):
            return False
        ended = flags & (TERMINATED | TRUNCATED)
        if ended == TERMINATED | TRUNCATED or (flags & FIRST and ended):
            return False
    fresh[:] = [bool(flags & (TERMINATED | TRUNCATED)) for flags in step.flags]
    return True


# --- streams to judge ----------------------------------------------------------------------------


def hello(environments: int = 1, **changes: object) -> bytes:
    fields: dict[str, object] = {
        "protocol_version": 1,
        "oldest_protocol_version": 1,
        "actor": "storm",
        "environment": ENVIRONMENT,
        "environments": environments,
        "observation": wire.ArraySpec(shape=SHAPE, dtype=DTYPE),
        "actions": ACTIONS,
        "action_repeat": REPEAT,
    }
    return wire.Hello(**{**fields, **changes}).SerializeToString()


def step(sequence: int, environments: int = 1, **changes: object) -> bytes:
    e = environments
    fields: dict[str, object] = {
        "sequence": sequence,
        "observation": bytes(16 * e),
        "reward": bytes(4 * e),
        "flags": bytes([0 if sequence else FIRST] * e),
    }
    return wire.ActorMessage(step=wire.Step(**{**fields, **changes})).SerializeToString()


def well_formed(chance: random.Random) -> list[bytes]:
    """Return a right stream: Hello and at most four steps, so that no unroll becomes whole."""
    environments = chance.choice((1, 1, 2, 3))
    stream = [hello(environments, protocol_version=chance.choice((1, 2)))]
    stream += [step(i, environments) for i in range(chance.randint(0, 4))]
    if chance.random() < 0.2:
        stream.append(wire.ActorMessage(goodbye=wire.Goodbye(reason="done")).SerializeToString())
    return stream


def odd_fields(chance: random.Random) -> list[bytes]:
    """Return a stream of right types, one field of which has an odd value."""
    e = chance.choice((1, 2))
    at = chance.randint(0, 3)
    stream = [hello(e), *(step(i, e) for i in range(at))]
    number = chance.choice((0, 1, 2, 3, 17, 2**31, 2**32 - 1))
    oddities: list[tuple[str, dict[str, object]]] = [
        ("hello", {"environment": chance.choice(("", "Pong", "é" * 9, ENVIRONMENT + "\n"))}),
        ("hello", {"environments": number}),
        ("hello", {"actions": number}),
        ("hello", {"action_repeat": number}),
        ("hello", {"protocol_version": number}),
        ("hello", {"oldest_protocol_version": number}),
        ("hello", {"actor": "x" * chance.choice((0, 257, 4_000)) + "\n\x1b[2J"}),
        (
            "hello",
            {
                "observation": wire.ArraySpec(
                    shape=chance.choice(([4], [], [-1], [2**62, 2**62], [0], [1] * 40)),
                    dtype=chance.choice((DTYPE, "", "object", "float32,i4", "V8")),
                )
            },
        ),
        ("step", {"sequence": chance.choice((0, at, at + 1, 2**64 - 1))}),
        ("step", {"reward": odd_floats(chance, e)}),
        ("step", {"observation": odd_floats(chance, 4 * e)}),
        ("step", {"observation": bytes(chance.choice((0, 1, 15, 16 * e, 16 * e + 1, 4096)))}),
        ("step", {"flags": chance.randbytes(e)}),
        ("step", {"flags": bytes(chance.choice((0, e + 1)))}),
        ("step", {"environment_seconds": chance.choice((math.nan, -1.0, 1e7, 1.0))}),
        ("step", {"wait_seconds": chance.choice((math.inf, -0.5, 2e6, 0.0))}),
    ]
    kind, change = chance.choice(oddities)
    if kind == "hello":
        return [hello(e, **change) if "environments" not in change else hello(**change), step(0, e)]
    flags = {} if "flags" in change else {"flags": bytes([0 if at else FIRST] * e)}
    return [
        *stream,
        step(**{"sequence": at, "environments": e, **flags, **change}),
        step(at + 1, e),
    ]


def stream(chance: random.Random) -> list[bytes]:
    """Return a stream of a random kind."""
    match chance.randrange(6):
        case 0:
            return well_formed(chance)
        case 1 | 2:
            return odd_fields(chance)
        case 3:
            return streams.reordered(well_formed(chance), chance)
        case _:
            return streams.mutated(well_formed(chance), chance)
