"""Relay of actor streams: gRPC from the actor, a local stream to the learner.

It judges nothing but credentials and sizes: sessions, slots and counts are the learner's, which
sees the end of a relay at once and closes the accounts of its streams as of actors that left.
"""

import asyncio
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError
from typing_extensions import override

from seedbed.rpc.local.packets import InvalidBlock
from seedbed.rpc.local.steps import StepCall
from seedbed.rpc.step_codec import hello_in
from seedbed.rpc.streams import NoHello, OpenStreams, StreamRejected, expect_hello
from seedbed.rpc.versions import ERROR_KEY, FRONTEND_KEY, HELLO_KEY
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc


class RelayRejected(StreamRejected):
    """Status with which the learner has ended a stream."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(error.details() or "", error.code())
        detail = dict(error.trailing_metadata() or ()).get(ERROR_KEY)
        self.metadata = ((ERROR_KEY, detail),) if isinstance(detail, bytes) else ()


def _step_bytes(hello: wire.Hello, most: int) -> int:
    """Return the bytes of a step of a Hello that nobody has judged yet, up to a bound."""
    size = 1
    for length in hello.observation.shape:
        size *= max(1, length)
        if size > most:
            return most
    itemsize = 4 if hello.observation.dtype.endswith("32") else 1
    return max(1, min(most, hello.environments * (itemsize * size + 5)))


class Relay(wire_grpc.InferenceServicer):
    """Passes each `Act` stream on to the learner.

    Args:
        path: path of the learner's socket for front ends.
        number: number of this front end, from 0.
        max_message_bytes: largest step.
    """

    def __init__(self, path: str, number: int, max_message_bytes: int) -> None:
        self._path, self._number, self._most = path, number, max_message_bytes
        self._open = OpenStreams("the front end stops")

    @override
    async def Act(self, _: Any, context: Any) -> None:
        await self._open.serve(context, lambda: self._act(context))

    async def _act(self, context: Any) -> None:
        carried = dict(context.invocation_metadata()).get(HELLO_KEY)
        first = None
        if carried is None:  # of protocol version 1 or 2
            try:
                first = await expect_hello(context, hello_in, self._open.hello_turn)
            except NoHello as error:
                raise StreamRejected(str(error)) from None
        hello = first or wire.Hello.FromString(carried or b"")
        metadata: list[tuple[str, str | bytes]] = [(FRONTEND_KEY, str(self._number))]
        if isinstance(carried, bytes):
            metadata.append((HELLO_KEY, carried))
        try:
            call = StepCall(self._path, metadata, _step_bytes(hello, self._most))
        except OSError as error:
            unavailable = grpc.StatusCode.UNAVAILABLE
            text = f"the learner of this front end is away: {error}; try again"
            raise StreamRejected(text, unavailable) from error
        if first is not None:
            await call.write(wire.ActorMessage(hello=first))
        up = asyncio.create_task(self._up(context, call))
        down = asyncio.create_task(self._down(context, call))
        try:
            done, _ = await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if down not in done:
                up.result()  # raises what has ended it; otherwise the actor has said all
            await down
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.wait({up, down})
            call.cancel()

    async def _up(self, context: Any, call: StepCall) -> None:
        """Pass the actor's messages on, until its side has ended."""
        while True:
            try:
                message = await context.read()
            except DecodeError:
                await call.write_invalid()  # so that the learner says what is wrong
                return
            if message is grpc.aio.EOF:
                await call.done_writing()
                return
            try:
                await call.write(message)
            except InvalidBlock as error:
                raise StreamRejected(f"{error}: send what Hello announced") from error

    async def _down(self, context: Any, call: StepCall) -> None:
        """Pass the learner's messages on, until it ends the stream."""
        while True:
            try:
                message = await call.read()
            except grpc.aio.AioRpcError as error:
                raise RelayRejected(error) from error
            if message is grpc.aio.EOF:
                return
            await context.write(message)

    @override
    async def GetStatus(self, _: Any, context: Any) -> wire.GetStatusReply:
        text = "ask the learner: a front end passes streams on"
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
        raise AssertionError("abort raises")
