"""Mutated messages against a service, each stream held against a slow judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from grpc._cython import cygrpc

from seedbed.rpc import channels
from tests.storm.credentials import Caller
from tests.storm.streams import Verdict, verdict

STREAM_S = 60.0  # a stream without an end after it counts as unanswered
STREAMS_A_CHANNEL = 200
REFUSED_SHARE = 0.1  # of the streams, which carry the credential of another role, or none


@dataclass(frozen=True)
class Method:
    """A streaming method under attack.

    Attributes:
        path: full name.
        make: returns the messages of one stream.
        judge: returns how that stream must end.
        is_answer: whether a reply counts as an answer; raises ValueError for a wrong one.
        cut: statuses of streams that are not judged, because their process may be killed.
        side_by_side: streams at a time.
        hello_key: metadata of the call that has the first of the messages; empty without any.
    """

    path: str
    make: Callable[[random.Random], list[bytes]]
    judge: Callable[[list[bytes]], Verdict]
    is_answer: Callable[[bytes], bool]
    cut: frozenset[grpc.StatusCode] = frozenset()
    side_by_side: int = 24
    hello_key: str = ""


@dataclass
class Tally:
    """Results of a fuzz. `mismatches` has the seeds and both sides of the first ones."""

    messages: int = 0
    streams: int = 0
    refused: int = 0  # for their credential
    unanswered: int = 0
    cut: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.messages += other.messages
        self.streams += other.streams
        self.refused += other.refused
        self.unanswered += other.unanswered
        self.cut += other.cut
        self.codes.update(other.codes)
        self.mismatches += other.mismatches


@dataclass(frozen=True)
class Door:
    """A method at an address, and the clients that try it.

    Attributes:
        address: of its server.
        method: the method.
        callers: clients with right and with wrong credentials.
    """

    address: str
    method: Method
    callers: Sequence[Caller]

    def caller(self, chance: random.Random) -> Caller:
        """Draw a client: most are served."""
        is_refused = chance.random() < REFUSED_SHARE
        return chance.choice([one for one in self.callers if (one.refusal is None) != is_refused])


async def fuzz(door: Door, seed: int, messages: int, deadline: float) -> Tally:
    """Send streams until `messages` were sent or `deadline` (by `time.monotonic`) has passed."""
    tally, numbers = Tally(), iter(range(10**9))

    async def worker() -> None:
        while tally.messages < messages and time.monotonic() < deadline:
            async with AsyncExitStack() as stack:
                opened: dict[int, grpc.aio.Channel] = {}
                for _ in range(STREAMS_A_CHANNEL):
                    if tally.messages >= messages or time.monotonic() >= deadline:
                        return
                    chance = random.Random(text := f"{seed}/{next(numbers)}")
                    caller = door.caller(chance)
                    if id(caller) not in opened:
                        channel = channels.aio_channel(door.address, caller.credentials)
                        opened[id(caller)] = await stack.enter_async_context(channel)
                    stream = door.method.make(chance)
                    await _one(opened[id(caller)], door.method, caller, stream, text, tally)

    await asyncio.gather(*(worker() for _ in range(door.method.side_by_side)))
    return tally


async def _one(
    channel: grpc.aio.Channel,
    method: Method,
    caller: Caller,
    stream: list[bytes],
    seed: str,
    tally: Tally,
) -> None:
    """Send a stream, and hold its end against the judge."""
    expected = method.judge(stream) if caller.refusal is None else verdict(caller.refusal)
    tally.streams += 1
    tally.refused += caller.refusal is not None
    tally.messages += len(stream)
    hello, written = (), stream
    if method.hello_key and stream:
        hello, written = ((method.hello_key, stream[0]),), stream[1:]
    call = channel.stream_stream(method.path)(
        metadata=(*caller.credentials.metadata(), *hello), timeout=STREAM_S, wait_for_ready=True
    )
    answers, wrong = 0, ""
    writing = asyncio.create_task(_write(call, written))
    try:
        while (reply := await call.read()) is not grpc.aio.EOF:
            answers += method.is_answer(reply)
    except grpc.aio.AioRpcError:
        pass  # `code` says so as well
    except ValueError as error:
        wrong = str(error)
        call.cancel()
    code = await call.code()
    await asyncio.gather(writing, return_exceptions=True)
    tally.codes[code.name] += 1
    if code in method.cut:
        tally.cut += 1
        return  # its process was hit
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        tally.unanswered += 1
    if (
        wrong
        or code not in expected.codes
        or answers > expected.answers
        or (
            # After a refusal gRPC drops answers that are still under way.
            code is grpc.StatusCode.OK and answers != expected.answers
        )
    ):
        wanted = "/".join(sorted(one.name for one in expected.codes))
        tally.mismatches.append(
            f"{method.path} seed {seed}: {code.name} after {answers} answers, "
            f"expected {wanted} after {expected.answers} {wrong}".rstrip()
        )


async def _write(call: Any, stream: list[bytes]) -> None:
    """Write messages. `call.write` would put INTERNAL in place of the status of a stream that has
    ended meanwhile, so that its status could not be judged.
    """
    await call.wait_for_connection()
    try:
        for message in stream:
            await call._cython_call.send_serialized_message(message)
        await call._cython_call.send_receive_close()
    except (cygrpc.InternalError, asyncio.InvalidStateError):
        pass  # the stream has ended: `read` says how
