"""Life cycle of gRPC streams: the first message, and the status with which a stream ends.

A servicer has one `OpenStreams` and passes each stream to `OpenStreams.serve`::

    async def Push(self, _, context):
        await self._streams.serve(context, lambda: self._push(context))

    async def _push(self, context):
        hello = await expect_hello(context)
        ...                                   # raise StreamRejected to end the stream

Clients `write` and `read`; `seedbed.rpc.reconnect` connects them again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import printable

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
# Longest time that a stream which is ended is given to write its last message.
LAST_WRITE_S = 1.0
# Characters of a status message: this program's own words, and a text of the peer.
STATUS_LENGTH = 1024


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


def hello_of(message: Any) -> Any:
    """Return the field `hello` of a message.

    Returns:
        The field, or None if it is not set.
    """
    return message.hello if message.HasField("hello") else None


async def expect_hello(context: Any, hello_of: Callable[[Any], Any] = hello_of) -> Any:
    """Read the first message of a stream.

    Args:
        context: the servicer's context of the stream.
        hello_of: returns the Hello of a message as `context.read` returns it, or None.

    Returns:
        The Hello.

    Raises:
        ValueError: no Hello came, which `OpenStreams.serve` answers with INVALID_ARGUMENT.
    """
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            message = await context.read()
    except TimeoutError:
        raise ValueError(f"no hello within {HELLO_TIMEOUT_S:g} s") from None
    if message is grpc.aio.EOF:
        raise ValueError("nothing instead of hello")
    hello = hello_of(message)
    if hello is None:
        raise ValueError("hello must come first")
    return hello


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
        self, context: Any, handle: Callable[[], Awaitable[None]], name: str = ""
    ) -> None:
        """Run the handler of a stream, and end the stream with the status of its exception.

        Args:
            context: the servicer's context of the stream.
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
            self.warn(context, rejection)
            if self._on_rejected is not None:
                self._on_rejected(rejection)
        # A peer that does not read keeps this waiting until its connection ends.
        await context.abort(rejection.code, str(rejection), rejection.metadata)

    async def write(self, context: Any, message: Any) -> None:
        """Write a message, so that a stream that is ended meanwhile gets its status.

        gRPC takes no status while a message is being written.

        Args:
            context: the servicer's context of the stream.
            message: a message of its type.
        """
        writing = asyncio.ensure_future(context.write(message))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing], timeout=LAST_WRITE_S)
            raise

    def warn(self, context: Any, rejection: StreamRejected) -> None:
        """Log that a peer is refused, unless too many are.

        Args:
            context: the servicer's context of the stream.
            rejection: the reason.
        """
        peer = printable(context.peer())
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


async def write(call: Any, message: Any) -> None:
    """Write on a client's stream. If the stream has ended, the next `read` raises why."""
    with contextlib.suppress(asyncio.InvalidStateError):
        await call.write(message)


async def read(call: Any) -> Any:
    """Read from a client's stream.

    Raises:
        grpc.aio.AioRpcError: the peer ended the stream with a status other than OK.
        ConnectionError: the peer ended the stream with OK.
    """
    message = await call.read()
    if message is grpc.aio.EOF:
        raise ConnectionError("it ended the stream")
    return message
