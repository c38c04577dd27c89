"""The server's end of local streams, whatever their messages are."""

import asyncio
import contextlib
import logging
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from seedbed.rpc import channels
from seedbed.rpc.credentials import Credentials, Denial
from seedbed.rpc.local.packets import DONE, LARGEST_PACKET, Metadata, end_packet, opened_by
from seedbed.rpc.streams import HELLO_TIMEOUT_S
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import printable

log = logging.getLogger(__name__)

# Packets that wait to be read, above which a peer that does not keep to lock-step is held up.
_PACKETS = 4
_BACKLOG = 1024


class _Ended(Exception):
    """The handler has ended the stream with a status."""


class LocalContext:
    """A server's stream, with the methods of gRPC's servicer context that servicers use.

    Subclasses read and write messages.

    Args:
        connection: socket of the stream.
        block: memory of the stream, which is closed with it.
        metadata: metadata of the call.
        path: path of the server's socket.

    Attributes:
        before_read: called before a packet is noted.
        most_packets: packets that may wait to be read.
    """

    most_packets: ClassVar[int] = _PACKETS

    def __init__(
        self,
        connection: socket.socket,
        block: Any,
        metadata: Metadata,
        path: str,
    ) -> None:
        self._socket, self._block, self._metadata, self._path = connection, block, metadata, path
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._packets: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._reads = False
        self._is_over = False
        self.before_read: Callable[[], None] = lambda: None
        # A descriptor that is closed while a thread is about to send may be another stream's.
        self._ending = threading.Lock()
        self._resume()

    def peer(self) -> str:
        """Return the address of the peer, for logs."""
        return f"unix:{self._path}"

    def invocation_metadata(self) -> Metadata:
        """Return the metadata of the call."""
        return self._metadata

    def _resume(self) -> None:
        if not self._reads:
            self._reads = True
            self._loop.add_reader(self._socket, self._on_readable)

    def _pause(self) -> None:
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._socket)

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(LARGEST_PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.before_read()
        if not data:  # the peer has ended, as gRPC cancels the handler then
            self._pause()
            if self._task is not None and not self._is_over:
                self._task.cancel()
            return
        self._packets.append(data)
        if len(self._packets) >= self.most_packets:
            self._pause()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _receive(self) -> bytes:
        """Return the next packet."""
        while not self._packets:
            self._waiter = self._loop.create_future()
            await self._waiter
        data = self._packets.popleft()
        self._resume()
        return data

    def _done(self, packet: bytes) -> Any:
        """Return EOF where a packet ends the client's side.

        Raises:
            DecodeError: the packet is of no kind that a client sends.
        """
        if packet[0] == DONE:
            return grpc.aio.EOF
        raise DecodeError(f"packet of kind {packet[0]}")

    async def _send(self, packet: bytes) -> None:
        """Send a packet. A client that is gone has cancelled the handler, or will at once."""
        try:
            self._socket.send(packet)
        except BlockingIOError:  # a client that does not read
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._socket, packet)
        except OSError:
            return

    def _send_from_thread(self, packet: bytes) -> None:
        """Do as `_send` does, in another thread than the event loop's."""
        try:
            with self._ending:
                self._socket.send(packet)
        except BlockingIOError:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                asyncio.run_coroutine_threadsafe(self._send(packet), self._loop)
        except OSError:
            return

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata = ()
    ) -> None:
        """End the stream with a status.

        Raises:
            _Ended: always.
        """
        self._is_over = True
        await self._send(end_packet(code, details, trailing_metadata))
        raise _Ended

    async def finish(self) -> None:
        """End the stream with the status OK."""
        self._is_over = True
        await self._send(end_packet(grpc.StatusCode.OK))

    def close(self) -> None:
        """Release the socket and the memory."""
        self._is_over = True
        self._pause()
        with self._ending:
            self._socket.close()
        self._block.close()


@dataclass(frozen=True)
class LocalMethod:
    """A method of a local server.

    Attributes:
        serve: serves a stream, as the method of a servicer does, with its context.
        context: kind of its contexts.
        block: from the descriptor of a client's memory, which it closes, to the memory.
    """

    serve: Callable[[Any], Awaitable[None]]
    context: type[LocalContext]
    block: Callable[[int], Any]


class LocalServer:
    """Server of local streams. Event loop only.

    Args:
        methods: methods by their paths.
        credentials: judge the streams, as they judge gRPC's.
        on_denied: called with each denial.
    """

    def __init__(
        self,
        methods: Mapping[str, LocalMethod],
        credentials: Credentials,
        on_denied: Callable[[Denial], None],
    ) -> None:
        self._methods, self._credentials, self._on_denied = methods, credentials, on_denied
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._path = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._most_streams = channels.max_connections()
        self._log = PeerLog(log)

    def listen(self, path: str) -> None:
        """Listen on a path, on which nothing listens any more.

        Raises:
            OSError: the path cannot be bound.
        """
        self._path = path
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(FileNotFoundError):
                # Of a server that was killed, since gRPC's own socket is bound already.
                Path(path).unlink()
            listener.bind(path)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor is left
            return
        if len(self._tasks) >= self._most_streams:
            text = "refused a local stream: %d are open, as many as descriptors allow"
            self._log.warning("most", text, len(self._tasks))
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        with contextlib.ExitStack() as opened:
            opened.enter_context(connection)
            try:
                path, method, context = await self._open(connection)
            except (TimeoutError, ValueError, OSError, struct.error) as error:
                text = printable(str(error) or "nothing came")
                self._log.warning("open", "a local stream cannot be opened: %s", text)
                return
            opened.callback(context.close)
            try:
                denial = self._credentials.denial(path, context.invocation_metadata(), {})
                if denial is not None:
                    self._on_denied(denial)
                    await context.abort(denial.code, denial.message)
                await method.serve(context)
                await context.finish()
            except (_Ended, asyncio.CancelledError):
                return
            except Exception:
                log.exception("a local stream ends")
                with contextlib.suppress(_Ended):
                    await context.abort(grpc.StatusCode.UNKNOWN, "an error of this process")

    async def _open(self, connection: socket.socket) -> tuple[str, LocalMethod, LocalContext]:
        """Return the path, the method and the context of a first packet."""
        readable = asyncio.Event()
        self._loop.add_reader(connection, readable.set)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await readable.wait()
        finally:
            self._loop.remove_reader(connection)
        data, descriptors, _, _ = socket.recv_fds(connection, LARGEST_PACKET, 2)
        try:
            if len(descriptors) != 1:
                raise ValueError(f"{len(descriptors)} descriptors in a first packet")
            path, metadata = opened_by(data)
            if path not in self._methods:
                raise ValueError(f"no method {path!r} is served")
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        method = self._methods[path]
        block = method.block(descriptors[0])
        context = method.context(connection, block, metadata, self._path)
        return path, method, context

    async def stop(self, grace_s: float) -> None:
        """Stop listening, and end the streams that have not ended after a grace."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            with contextlib.suppress(FileNotFoundError):
                Path(self._path).unlink()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
