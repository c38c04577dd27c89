"""Verdicts about streams, and the mutations that all three services are fuzzed with."""

from __future__ import annotations

import math
import random
import struct
from typing import NamedTuple

import grpc

OK = grpc.StatusCode.OK
INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISFIT = grpc.StatusCode.FAILED_PRECONDITION
FULL = grpc.StatusCode.RESOURCE_EXHAUSTED
AGAIN = grpc.StatusCode.UNAVAILABLE
JUMP = grpc.StatusCode.OUT_OF_RANGE

ODD_FLOATS = (math.nan, math.inf, -math.inf, 3e38, -3e38, 1.1e6, -1.1e6, 1e6, -1e6, 0.0)


class Verdict(NamedTuple):
    """How a stream must end.

    Attributes:
        codes: the statuses that are right. More than one where it depends on other streams.
        answers: answers before the end.
    """

    codes: frozenset[grpc.StatusCode]
    answers: int


def verdict(*codes: grpc.StatusCode, answers: int = 0) -> Verdict:
    return Verdict(frozenset(codes), answers)


def odd_floats(chance: random.Random, count: int) -> bytes:
    return struct.pack(f"<{count}f", *(chance.choice(ODD_FLOATS) for _ in range(count)))


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change, cut, double or insert a few bytes of a message."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = chance.randbytes(chance.randint(1, 9))
            case _:
                changed[at:at] = changed[max(0, at - 8) : at]
    return bytes(changed)


def mutated(stream: list[bytes], chance: random.Random) -> list[bytes]:
    """Change bytes in one message of a stream."""
    at = chance.randrange(len(stream))
    stream[at] = mutate(stream[at], chance)
    return stream


def reordered(stream: list[bytes], chance: random.Random) -> list[bytes]:
    """Drop, double or exchange messages of a stream."""
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(stream) + 1)
        match chance.randrange(3):
            case 0:
                del stream[at : at + 1]
            case 1:
                stream[at:at] = stream[max(0, at - 1) : at]
            case _:
                chance.shuffle(stream)
    return stream
