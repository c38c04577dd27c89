"""Client's end of a gRPC stream for the coroutines of an event loop."""

import asyncio
import contextlib
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from seedbed.rpc.reconnect import FATAL
from seedbed.rpc.stream import StreamEnded, UnreadableMessage
from seedbed.rpc.streams import status_error

Sent = TypeVar("Sent")
Received = TypeVar("Received")


class AsyncioStream(Generic[Sent, Received]):
    """A `Stream` over a call of `grpc.aio`.

    Args:
        call: the call, begun.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._is_over = False  # ended here

    async def send(self, message: Sent) -> None:
        """Send a message, as of `Stream`."""
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await self._call.write(message)

    async def receive(self, timeout_s: float | None = None) -> Received:
        """Return the next message, as of `Stream`."""
        try:
            async with asyncio.timeout(timeout_s):
                message: Received | None = await self._call.read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_over and task is not None and not task.cancelling():
                raise status_error(grpc.StatusCode.CANCELLED, "the client ended it") from None
            raise
        if message is grpc.aio.EOF:
            raise StreamEnded
        if message is None:  # gRPC has logged what a reader of messages raised
            raise UnreadableMessage
        return message

    async def half_close(self) -> None:
        """End this side, as of `Stream`."""
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await self._call.done_writing()

    async def raise_if_refused(self) -> None:
        """Raise the status of a refused stream, as of `Stream`."""
        if self._call.done() and await self._call.code() in FATAL:
            await self._call.read()

    def end(self) -> None:
        """End the stream, as of `Stream`."""
        self._is_over = True
        self._call.cancel()
