"""Server's end of a gRPC stream."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from seedbed.rpc.stream import Metadata, StreamEnded

Sent = TypeVar("Sent")
Received = TypeVar("Received")


class AsyncioServerStream(Generic[Sent, Received]):
    """A `ServerStream` over the context of a `grpc.aio` servicer.

    Args:
        context: the context.
    """

    can_post = False

    def __init__(self, context: Any) -> None:
        self._context = context
        self.peer: Callable[[], str] = context.peer
        self.invocation_metadata: Callable[[], Metadata] = context.invocation_metadata
        self.crosses_network = not context.peer().startswith("unix:")
        self.before_receive: Callable[[], None] = lambda: None

    async def receive(self) -> Received:
        """Return the next message, as of `ServerStream`."""
        message: Received = await self._context.read()
        if message is grpc.aio.EOF:
            raise StreamEnded
        return message

    async def send(self, message: Sent) -> None:
        """Send a message, as of `ServerStream`."""
        await self._context.write(message)

    def post(self, message: Sent) -> None:
        """Refuse, because gRPC's event loop has to send."""
        raise NotImplementedError(f"no thread may send {type(message).__name__}")

    def pack(self, pieces: Iterable[Any]) -> bytes:
        """Join the pieces of a serialized message, as of `PackingServerStream`."""
        return b"".join(pieces)

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata = ()
    ) -> None:
        """End the stream with a status, as of `ServerStream`."""
        await self._context.abort(code, details, tuple(trailing_metadata))


def stream_handler(
    serve: Callable[[AsyncioServerStream[Any, Any]], Awaitable[None]], **serializers: Any
) -> Any:
    """Return gRPC's handler of a streaming method.

    Args:
        serve: serves a stream.
        serializers: `request_deserializer` and `response_serializer`; bytes without.
    """

    async def method(_: Any, context: Any) -> None:
        await serve(AsyncioServerStream(context))

    return grpc.stream_stream_rpc_method_handler(method, **serializers)
