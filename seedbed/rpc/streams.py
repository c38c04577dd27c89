"""Life cycle of gRPC streams: until the status with which a stream ends.

A servicer has one `OpenStreams` and passes each stream to `OpenStreams.serve`::

    async def Push(self, _, context):
        stream = AsyncioServerStream(context)
        await self._streams.serve(stream, lambda: self._push(stream))

    async def _push(self, stream):
        hello = hello_in(stream.invocation_metadata(), wire.GossipHello)
        ...                                   # raise StreamRejected to end the stream

`seedbed.rpc.reconnect` connects clients again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from seedbed.rpc.stream import ServerStream, StreamEnded
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import printable

log = logging.getLogger(__name__)

# Longest time that a stream which is ended is given to write its last message.
LAST_WRITE_S = 1.0
# Characters of a status message: this program's own words, and a text of the peer.
STATUS_LENGTH = 1024


_Received = TypeVar("_Received")
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def status_code(number: int) -> grpc.StatusCode:
    """Return the code of a status by its number on the wire; UNKNOWN of any other number."""
    return _CODES.get(number, grpc.StatusCode.UNKNOWN)


def status_error(
    code: grpc.StatusCode, details: str, trailing: Iterable[tuple[str, str | bytes]] = ()
) -> grpc.aio.AioRpcError:
    """Return the error that `grpc.aio` raises where a stream ends with a status."""
    metadata = grpc.aio.Metadata(*trailing)
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), metadata, details=details)


class StreamRejected(Exception):
    """Reason to end a stream with a gRPC status, raised by the handler of the stream.

    Attributes:
        code: INVALID_ARGUMENT unless a subclass or the constructor sets another. Clients that
            receive a code of `reconnect.FATAL` do not try again.
        metadata: trailing metadata of the status.
    """

    code = grpc.StatusCode.INVALID_ARGUMENT
    metadata: tuple[tuple[str, bytes], ...] = ()

    def __init__(self, message: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(printable(message, STATUS_LENGTH))
        self.code = code or self.code


class OpenStreams:
    """Open streams of one servicer. Event loop only.

    Args:
        stopping: status message of the streams that `close` ends, and of those that come later.
        on_rejected: called before a peer receives a status other than UNAVAILABLE.
        invalid: exceptions of a handler that mean INVALID_ARGUMENT. Every other exception is an
            error of this process: gRPC logs it and ends the stream with UNKNOWN.

    Attributes:
        closed: whether `close` was called.
    """

    def __init__(
        self,
        stopping: str,
        on_rejected: Callable[[StreamRejected], None] | None = None,
        invalid: tuple[type[Exception], ...] = (ValueError, DecodeError),
    ) -> None:
        self._on_rejected, self._invalid = on_rejected, invalid
        self._stopped = StreamRejected(stopping, grpc.StatusCode.UNAVAILABLE)
        self._ended: dict[asyncio.Task[Any], StreamRejected | None] = {}
        self._warnings = PeerLog(log)
        self.closed = False

    async def serve(
        self,
        stream: ServerStream[Any, Any],
        handle: Callable[[], Awaitable[None]],
        name: str = "",
    ) -> None:
        """Run the handler of a stream, and end the stream with the status of its exception.

        StreamEnded is the status OK: the client has sent all that it had.

        Args:
            stream: the stream.
            handle: serves the stream. Its cleanup is done before the peer receives the status.
            name: begins the status message of `invalid` exceptions.
        """
        task = asyncio.current_task()
        assert task is not None
        self._ended[task] = None
        rejection: StreamRejected | None
        try:
            if not self.closed:
                await handle()
                return
            rejection = self._stopped
        except StreamEnded:
            return
        except StreamRejected as error:
            rejection = error
        except self._invalid as error:
            rejection = StreamRejected(f"{name}: {error}" if name else str(error))
        except asyncio.CancelledError:
            rejection = self._ended[task]
            if rejection is None:
                raise  # The peer ended the stream.
            task.uncancel()
        finally:
            del self._ended[task]
        if rejection.code is not grpc.StatusCode.UNAVAILABLE:
            self.warn(stream, rejection)
            if self._on_rejected is not None:
                self._on_rejected(rejection)
        # A peer that does not read keeps this waiting until its connection ends.
        await stream.abort(rejection.code, str(rejection), rejection.metadata)

    async def write(self, stream: ServerStream[Any, Any], message: Any) -> None:
        """Write a message, so that a stream that is ended meanwhile gets its status.

        gRPC takes no status while a message is being written.

        Args:
            stream: the stream.
            message: a message of its type.
        """
        writing = asyncio.ensure_future(stream.send(message))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # Nobody else asks how it has ended, and asyncio would log that.
            writing.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([writing], timeout=LAST_WRITE_S)
            raise

    def warn(self, stream: ServerStream[Any, Any], rejection: StreamRejected) -> None:
        """Log that a peer is refused, unless too many are.

        Args:
            stream: the stream.
            rejection: the reason.
        """
        peer = printable(stream.peer())
        self._warnings.warning(rejection.code.name, "refused %s: %s", peer, rejection)

    def end(self, task: asyncio.Task[Any], rejection: StreamRejected) -> None:
        """Cancel the handler of one stream. The first rejection of a stream counts."""
        if task in self._ended and self._ended[task] is None:
            self._ended[task] = rejection
            task.cancel()

    def close(self) -> None:
        """End every stream, now and later, with UNAVAILABLE: clients connect again."""
        self.closed = True
        for task in list(self._ended):
            self.end(task, self._stopped)


async def beside(
    work: asyncio.Task[Any] | None, receiving: Coroutine[Any, Any, _Received]
) -> _Received:
    """Receive while earlier work goes on, and raise at once what the work raises.

    A peer that sends nothing more before it has its answer learns why there is none.

    Args:
        work: what is done with the message before; None is nothing.
        receiving: receives the next message.

    Returns:
        What `receiving` returns, once the work is done too.
    """
    if work is None:
        return await receiving
    message = asyncio.ensure_future(receiving)
    try:
        await asyncio.wait({work, message}, return_when=asyncio.FIRST_EXCEPTION)
        if not work.done():  # the peer has ended its side, but the work is its own
            await work
        work.result()
        return await message
    finally:
        message.cancel()
