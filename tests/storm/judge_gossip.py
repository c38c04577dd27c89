"""Reference for the service `Gossip`, read off `gossip.proto` and docs/security.md.

The learner under attack is rank 0 of three, with eight parameters.
"""

from __future__ import annotations

import hashlib
import math
import random
import struct
import zlib
from typing import Any

from google.protobuf.message import DecodeError

from seedbed.v1 import gossip_pb2 as wire
from tests.storm import streams
from tests.storm.streams import AGAIN, INVALID, JUMP, MISFIT, OK, Verdict, verdict

EXPERIMENT, LEARNERS, NUMBERS, PROTOCOL = "storm", 3, 8, 1
PARAMETERS = {"dense/kernel": [3, 2], "dense/bias": [2]}
SIZE = 4 * NUMBERS
PREVIOUS = LEARNERS - 1  # the learner that sends to rank 0 around the ring
LARGEST = 1e3  # of a number that is mixed without question
LARGEST_STEP = 100  # that any count may grow by at once; a larger one depends on the time
LARGEST_COUNT = 2**53  # above it a double skips integers


def hello_fits(hello: wire.GossipHello) -> bool:
    return (
        hello.protocol_version == PROTOCOL
        and hello.experiment == EXPERIMENT
        and hello.learners == LEARNERS
        and 0 < hello.rank < LEARNERS
        and list(hello.parameters) == [_digest(*one) for one in PARAMETERS.items()]
    )


def _digest(name: str, shape: list[int]) -> int:
    first: int = struct.unpack("<I", hashlib.sha256(f"{name} {shape}".encode()).digest()[:4])[0]
    return first


def _judge_hello(data: bytes) -> tuple[wire.GossipHello, Verdict | None]:
    """Return the Hello of a call, and how the call must end where it does not fit."""
    try:
        hello = wire.GossipHello.FromString(data)
    except DecodeError:
        return wire.GossipHello(), verdict(INVALID)
    return hello, None if hello_fits(hello) else verdict(MISFIT)


def judge_push(messages: list[bytes]) -> Verdict:
    """Judge a Hello and a stream of serialized PushRequests."""
    if not messages:
        return verdict(INVALID)
    _, end_of_hello = _judge_hello(messages[0])
    if end_of_hello is not None:
        return end_of_hello
    answers, offset, iteration, unsure, jumps = 0, 0, 0, False, False
    buffer = b""
    for data in messages[1:]:
        try:
            message = wire.PushRequest.FromString(data)
        except DecodeError:
            return verdict(INVALID, answers=answers)
        kind = message.WhichOneof("message")
        if kind == "heartbeat":
            if not heartbeat_fits(message.heartbeat):
                return verdict(INVALID, answers=answers)
            unsure |= len(message.heartbeat.over) > 256
            jumps |= max(_counts(message.heartbeat)) > LARGEST_STEP
        elif kind == "chunk":
            chunk = message.chunk
            if not offset:
                iteration, buffer = chunk.iteration, b""
            end = offset + len(chunk.payload)
            place = (chunk.size, chunk.iteration, chunk.offset) == (SIZE, iteration, offset)
            if not place or not chunk.payload or end > SIZE:
                return verdict(INVALID, answers=answers)
            buffer, offset = buffer + chunk.payload, end
            if end < SIZE:
                continue
            offset = 0
            numbers = struct.unpack(f"<{NUMBERS}f", buffer)
            right = chunk.iteration <= LARGEST_COUNT and zlib.crc32(buffer) == chunk.crc32
            if not right or not all(map(math.isfinite, numbers)):
                return verdict(INVALID, answers=answers)
            # Parameters beyond gossip.max_norm_ratio are refused, or received and not mixed.
            unsure |= max(map(abs, numbers)) > LARGEST
            jumps |= chunk.iteration > LARGEST_STEP
            answers += 1
        else:
            return verdict(INVALID, answers=answers)
    doubts = [*([INVALID] if unsure else []), *([JUMP] if jumps else [])]
    return verdict(OK, *doubts, answers=answers)


def heartbeat_fits(member: wire.Member) -> bool:
    return all(0 <= value <= LARGEST_COUNT for value in _counts(member)) and (
        abs(member.return_sum) <= LARGEST_COUNT
    )


def _counts(member: wire.Member) -> tuple[float, ...]:
    counts = (member.iteration, member.updates, member.env_frames, member.return_count)
    return (*counts, member.seconds, member.dollars)


def judge_reduce(messages: list[bytes]) -> Verdict:
    """Judge a stream for a learner that runs all-reduce. Segments out of place may be refused."""
    if not messages:
        return verdict(INVALID)
    hello, end_of_hello = _judge_hello(messages[0])
    if end_of_hello is not None:
        return end_of_hello
    if hello.rank != PREVIOUS:
        return verdict(INVALID, MISFIT)
    for data in messages[1:]:
        try:
            message = wire.ReduceRequest.FromString(data)
        except DecodeError:
            return verdict(INVALID)
        if not message.HasField("segment"):
            return verdict(INVALID)
    return verdict(OK, INVALID, MISFIT)


def judge_reduce_refused(messages: list[bytes]) -> Verdict:
    """Judge a stream for a learner that does not run all-reduce."""
    return verdict(MISFIT, INVALID)


def judge_fetch(messages: list[bytes]) -> Verdict:
    """Judge a Hello and a FetchRequest. A rank or a release that differs may fit soon."""
    try:
        wire.FetchRequest.FromString(messages[1])
    except DecodeError:
        return verdict(INVALID)
    _, end_of_hello = _judge_hello(messages[0])
    if end_of_hello is None:
        return verdict(OK)
    return verdict(*end_of_hello.codes, AGAIN)


def is_received(reply: bytes) -> bool:
    return wire.PushReply.FromString(reply).HasField("received")


# --- streams to judge ----------------------------------------------------------------------------


def _hello(chance: random.Random, **changes: Any) -> wire.GossipHello:
    """Return the hello of a process that has just started."""
    fields = {
        "protocol_version": PROTOCOL,
        "experiment": EXPERIMENT,
        "rank": PREVIOUS,
        "learners": LEARNERS,
        "parameters": [_digest(*one) for one in PARAMETERS.items()],
        "incarnation": chance.randrange(1, 2**63),
    }
    return wire.GossipHello(**{**fields, **changes})


def _odd_hello(chance: random.Random) -> wire.GossipHello:
    number = chance.choice((0, 1, 2, 3, 4, 2**31, 2**32 - 1))
    kernel, bias = (_digest(*one) for one in PARAMETERS.items())
    parameters = chance.choice(
        (
            [],
            [kernel],
            [bias, kernel],
            [kernel, bias, bias],
            [_digest("dense/kernel", [2, 3]), bias],
            [kernel, bias] * 100,
        )
    )
    changes: list[dict[str, Any]] = [
        {"protocol_version": number},
        {"experiment": chance.choice(("", "storm\n", "x" * 1000))},
        {"rank": number},
        {"learners": number},
        {"parameters": parameters},
    ]
    return _hello(chance, **chance.choice(changes))


def _chunks(iteration: int, cut: int, values: list[float], **changes: Any) -> list[wire.Chunk]:
    data = struct.pack(f"<{NUMBERS}f", *values)
    made = []
    for start, stop in ((0, cut), (cut, SIZE)) if cut else ((0, SIZE),):
        crc32 = zlib.crc32(data) if stop == SIZE else 0
        fields = {"iteration": iteration, "offset": start, "size": SIZE, "crc32": crc32}
        made.append(wire.Chunk(**{**fields, "payload": data[start:stop], **changes}))
    return made


def _odd_chunks(chance: random.Random) -> list[wire.Chunk]:
    odd = [chance.choice((0.0, 0.5, *streams.ODD_FLOATS)) for _ in range(NUMBERS)]
    number = chance.choice((0, 1, 31, 32, 33, 2**32 - 1, 2**64 - 1))
    changes: list[dict[str, Any]] = [
        {"values": odd},
        {"offset": number},
        {"size": number},
        {"crc32": 7},
        {"payload": bytes(chance.choice((0, 1, 31, 33, 4096)))},
        {"iteration": 2**64 - 1},
    ]
    right: dict[str, Any] = {"iteration": 1, "cut": 8, "values": [0.5] * NUMBERS}
    return _chunks(**{**right, **chance.choice(changes)})


def _odd_member(chance: random.Random) -> wire.Member:
    number = chance.choice((math.nan, math.inf, -math.inf, -1.0, 0.0, 3.0))
    changes: list[dict[str, Any]] = [
        {"seconds": number},
        {"dollars": number},
        {"return_sum": number},
        {"over": "x" * chance.choice((0, 257, 10_000)) + "\n\x1b[2J"},
        {"waiting": True},
    ]
    return wire.Member(iteration=3, **chance.choice(changes))


def push_stream(chance: random.Random) -> list[bytes]:
    """Return a stream for Push of a random kind."""
    hello, case = _hello(chance, rank=chance.choice((1, 2))), chance.randrange(8)
    body: list[wire.Member | wire.Chunk] = []
    for iteration in range(chance.randint(0, 3)):
        if chance.random() < 0.5:
            body.append(wire.Member(iteration=iteration, seconds=1.0))
        values = [chance.uniform(-1, 1) for _ in range(NUMBERS)]
        body += _chunks(iteration, chance.choice((0, 4, 8)), values)
    if case == 0:
        hello = _odd_hello(chance)
    elif case in (1, 2):
        body += _odd_chunks(chance)
    elif case == 3:
        body.append(_odd_member(chance))
    stream = [hello.SerializeToString()]
    for one in body:
        is_chunk = isinstance(one, wire.Chunk)
        request = wire.PushRequest(chunk=one) if is_chunk else wire.PushRequest(heartbeat=one)
        stream.append(request.SerializeToString())
    return _damaged(stream, case, chance)


def reduce_stream(chance: random.Random) -> list[bytes]:
    """Return a stream for Reduce of a random kind."""
    case = chance.randrange(8)
    hello = _odd_hello(chance) if case == 0 else _hello(chance, rank=chance.choice((1, 2, 2)))
    stream = [hello.SerializeToString()]
    for hop in range(chance.randint(0, 4)):
        odd = case in (1, 2)
        segment = wire.ReduceRequest.Segment(
            update=chance.choice((1, 2, 2**64 - 1)) if odd else 1,
            step=chance.choice((0, 99, 2**32 - 1)) if odd else hop,
            data=bytes(chance.choice((0, 5, 12, 65536)) if odd else 12),
        )
        stream.append(wire.ReduceRequest(segment=segment).SerializeToString())
    return _damaged(stream, case, chance)


def _damaged(stream: list[bytes], case: int, chance: random.Random) -> list[bytes]:
    if case in (4, 5):
        return streams.mutated(stream, chance)
    return streams.reordered(stream, chance) if case == 6 else stream


def fetch_stream(chance: random.Random) -> list[bytes]:
    """Return a stream for Fetch of a random kind."""
    hello = _odd_hello(chance) if chance.random() < 0.4 else _hello(chance)
    request = wire.FetchRequest(whole_state=chance.random() < 0.3)
    stream = [hello.SerializeToString(), request.SerializeToString()]
    return streams.mutated(stream, chance) if chance.random() < 0.4 else stream
