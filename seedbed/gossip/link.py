"""A learner's voice: one peer to whom it sends beats, parameters and segments."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from seedbed.gossip.chunks import chunks
from seedbed.gossip.mailbox import Message
from seedbed.gossip.membership import PeerStatus
from seedbed.gossip.servicer import message_of
from seedbed.rpc import channels
from seedbed.rpc.tls import Tls
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc

log = logging.getLogger(__name__)

RETRY_S = (0.2, 5.0)  # the first pause, and the longest
WELCOME_S = 10.0


class Link:
    """The Push stream to one peer, made again whenever it ends. Event loop only, but for what is
    read.

    Attributes:
        up: whether the peer has welcomed this learner.
        busy: whether a message is on its way. Of those that come meanwhile the newest is next.
        sent, sent_bytes: messages that the peer has said it has received, and their bytes.
        refused: why the peer does not want this learner, in words; or empty.
    """

    def __init__(
        self,
        rank: int,
        address: str,
        hello: wire.GossipHello,
        beat: Callable[[], PeerStatus],
        beat_s: float,
        tls: Tls | None,
    ) -> None:
        self.rank, self.address = rank, address
        self._hello, self._beat, self._beat_s, self._tls = hello, beat, beat_s, tls
        self.up = self.busy = False
        self.sent = self.sent_bytes = 0
        self.refused = ""
        self._message: Message | None = None  # on its way
        self._next: Message | None = None
        self._writing: asyncio.Task[None] | None = None  # the newest connection's
        self._leaving = False
        self._ended = asyncio.Event()  # the connection on which it leaves
        self._given = asyncio.Event()

    def offer(self, message: Message) -> None:
        """Send a message, or keep it until the last one is through, in the place of one that
        was kept.
        """
        if not self.up:
            return
        if self.busy:
            self._next = message
        else:
            self.busy, self._message = True, message
            self._given.set()

    def through(self) -> None:
        """The peer has received the last message."""
        assert self._message is not None
        self.sent += 1
        self.sent_bytes += self._message.values.nbytes
        self.busy, following, self._next = False, self._next, None
        if following is not None:
            self.offer(following)

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        pause, said = RETRY_S[0], ""
        while True:
            started = time.monotonic()
            try:
                await self._connect()
            except grpc.aio.AioRpcError as error:
                cause = f"{error.code().name}: {error.details()}"
                refusals = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
                self.refused = str(error.details()) if error.code() in refusals else ""
            except (TimeoutError, ConnectionError) as error:
                cause = str(error) or "no answer"
            finally:
                self.up, self.busy, self._next = False, False, None
                self._given.clear()
            if cause != said:
                said = cause
                log.info("learner %d at %s: %s", self.rank, self.address, cause)
            if time.monotonic() - started > RETRY_S[1]:
                pause = RETRY_S[0]
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, RETRY_S[1])

    async def _connect(self) -> None:
        channel = channels.aio_channel(self.address, self._tls)
        try:
            call: Any = wire_grpc.GossipStub(channel).Push()
            await write(call, wire.PushRequest(hello=self._hello))
            async with asyncio.timeout(WELCOME_S):
                await read(call)
            self.up, self.refused = True, ""
            self._ended.clear()
            self._writing = asyncio.create_task(self._write(call))
            while True:
                reply = await read(call)
                if reply.WhichOneof("message") == "received":
                    self.through()
        finally:
            if self._writing is not None:
                self._writing.cancel()
            self._ended.set()
            await channel.close()

    async def farewell(self) -> None:
        """Send a last beat, which says what this learner has done and why it ends."""
        if self._writing is not None and not self._writing.done():
            self._leaving = True
            self._given.set()
            await self._ended.wait()  # the peer has read all of it, and ends the stream

    async def _write(self, call: Any) -> None:
        """Beats, and messages as they are given; one writer at a time."""
        while True:
            await write(call, wire.PushRequest(beat=message_of(self._beat())))
            if self._leaving:
                with contextlib.suppress(asyncio.InvalidStateError):
                    await call.done_writing()
                return
            due = time.monotonic() + self._beat_s
            while (left := due - time.monotonic()) > 0 and not self._leaving:
                try:
                    async with asyncio.timeout(left):
                        await self._given.wait()
                except TimeoutError:
                    break
                self._given.clear()
                if self._message is not None and self.busy and not self._leaving:
                    for chunk in chunks(self._message.iteration, self._message.values):
                        await write(call, wire.PushRequest(chunk=chunk))


async def write(call: Any, message: Any) -> None:
    with contextlib.suppress(asyncio.InvalidStateError):  # it has ended: the next read says how
        await call.write(message)


async def read(call: Any) -> Any:
    message = await call.read()
    if message is grpc.aio.EOF:
        code = await call.code()
        if code is not grpc.StatusCode.OK:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(code, nothing, nothing, await call.details())
        raise ConnectionError("it ended the stream")
    return message
