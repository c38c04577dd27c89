"""Mutated messages against a service, each stream held against a slow judge."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from grpc._cython import cygrpc

from seedbed.rpc import channels
from tests.storm.streams import Verdict

STREAM_S = 60.0  # a stream without an end after it counts as unanswered
STREAMS_A_CHANNEL = 200


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
    unanswered: int = 0
    cut: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.messages += other.messages
        self.streams += other.streams
        self.unanswered += other.unanswered
        self.cut += other.cut
        self.codes.update(other.codes)
        self.mismatches += other.mismatches


async def fuzz(
    address: str,
    method: Method,
    seed: int,
    messages: int,
    deadline: float,
    metadata: Sequence[tuple[str, str]] = (),
) -> Tally:
    """Send streams until `messages` were sent or `deadline` (by `time.monotonic`) has passed."""
    tally, numbers = Tally(), iter(range(10**9))

    async def worker() -> None:
        while tally.messages < messages and time.monotonic() < deadline:
            async with channels.aio_channel(address) as channel:
                for _ in range(STREAMS_A_CHANNEL):
                    if tally.messages >= messages or time.monotonic() >= deadline:
                        return
                    await _one(channel, method, f"{seed}/{next(numbers)}", tally, metadata)

    await asyncio.gather(*(worker() for _ in range(method.side_by_side)))
    return tally


async def _one(
    channel: grpc.aio.Channel, method: Method, seed: str, tally: Tally, metadata: Any
) -> None:
    """Send the stream of a seed, and hold its end against the judge."""
    stream = method.make(random.Random(seed))
    expected = method.judge(stream)
    tally.streams += 1
    tally.messages += len(stream)
    hello, written = (), stream
    if method.hello_key and stream:
        hello, written = ((method.hello_key, stream[0]),), stream[1:]
    call = channel.stream_stream(method.path)(
        metadata=(*metadata, *hello), timeout=STREAM_S, wait_for_ready=True
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
