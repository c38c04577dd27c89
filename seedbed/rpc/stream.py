"""Ends of typed streams, whatever carries their messages.

A client's end is a `Stream` for coroutines, or a `BlockingStream` for one thread; a server's end is
a `ServerStream`. `seedbed.rpc.stream_factory` opens those of clients.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import grpc

Metadata = Sequence[tuple[str, str | bytes]]

Sent = TypeVar("Sent", contravariant=True)
Received = TypeVar("Received", covariant=True)


class StreamEnded(ConnectionError):
    """The peer has ended the stream, or its side of it, without an error."""

    def __init__(self) -> None:
        super().__init__("it ended the stream")


class UnreadableMessage(ConnectionError):
    """The peer has sent bytes that are no message of the stream."""

    def __init__(self, cause: object = "see the log") -> None:
        super().__init__(f"its message cannot be read: {cause}")


class Stream(Protocol[Sent, Received]):
    """A client's end. One coroutine sends, and one receives."""

    async def send(self, message: Sent) -> None:
        """Send a message. Where the stream has ended, the next `receive` raises why."""

    async def receive(self, timeout_s: float | None = None) -> Received:
        """Return the next message.

        Args:
            timeout_s: longest wait; None waits until the stream ends.

        Raises:
            TimeoutError: nothing came in time.
            StreamEnded: the server has ended the stream with the status OK.
            UnreadableMessage: the message cannot be read.
            grpc.aio.AioRpcError: it has ended with another status: the server's, UNAVAILABLE
                where the server is gone, CANCELLED after `end`.
        """

    async def half_close(self) -> None:
        """End this side of the stream: the server's `receive` raises StreamEnded."""

    async def raise_if_refused(self) -> None:
        """Raise the status of a stream that the server has refused, without a wait."""

    def end(self) -> None:
        """End the stream, and release it. Further calls do nothing."""


class BlockingStream(Protocol[Sent, Received]):
    """A client's end for one thread, which receives a message before it sends the next one."""

    def send(self, message: Sent, is_last: bool = False) -> None:
        """Send a message. Where the stream has ended, the next `receive` raises why.

        Args:
            message: the message.
            is_last: end this side with it: the server's `receive` raises StreamEnded after it.
        """

    def receive(self, timeout_s: float) -> Received:
        """Return the next message.

        Args:
            timeout_s: longest wait.

        Raises:
            TimeoutError: nothing came in time, after which the stream may have ended.
            StreamEnded: the server has ended the stream with the status OK.
            UnreadableMessage: the message cannot be read.
            grpc.aio.AioRpcError: as of `Stream.receive`.
        """

    def end(self) -> None:
        """End the stream, so that a `receive` that waits raises CANCELLED. Any thread."""

    def close(self) -> None:
        """End and release the stream. In the thread that receives."""


class ServerStream(Protocol[Sent, Received]):
    """A server's end. One coroutine receives, and one at a time sends.

    The end of a client cancels the coroutine that serves the stream; over gRPC a `receive` that
    waits may raise StreamEnded in its place.

    Attributes:
        crosses_network: whether the client may be on another machine.
        can_post: whether any thread may `post`. Otherwise the event loop has to `send`.
        before_receive: called in the event loop once a message has come, before `receive` returns
            it, by streams that can post: what a thread has posted may have led to the message.
    """

    crosses_network: bool
    can_post: bool
    before_receive: Callable[[], None]

    def peer(self) -> str:
        """Return the address of the client, for logs."""

    def invocation_metadata(self) -> Metadata:
        """Return the metadata of the call."""

    async def receive(self) -> Received:
        """Return the next message.

        Raises:
            StreamEnded: the client has ended its side.
            google.protobuf.message.DecodeError: the message cannot be read.
        """

    async def send(self, message: Sent) -> None:
        """Send a message."""

    def post(self, message: Sent) -> None:
        """Send a message from any thread, without a wait."""

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata = ()
    ) -> None:
        """End the stream with a status, and raise what ends the coroutine that serves it."""


class PackingServerStream(ServerStream[bytes, bytes | memoryview], Protocol):
    """A server's end of large messages, of which a thread copies the pieces."""

    def pack(self, pieces: Iterable[Any]) -> bytes:
        """Return what `send` takes, of the oldest request's answer. Any thread.

        Args:
            pieces: of the serialized answer: bytes, or contiguous arrays.
        """
