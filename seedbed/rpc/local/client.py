"""The client's end of a local stream, whatever its messages are."""

import asyncio
import contextlib
import socket
from typing import Any

import grpc
import grpc.aio

from seedbed.rpc.local.packets import (
    DONE,
    LARGEST_PACKET,
    Metadata,
    Status,
    open_packet,
    status_in,
)
from seedbed.rpc.reconnect import FATAL
from seedbed.rpc.streams import status_error
from seedbed.rpc.versions import ERROR_KEY


class LocalCall:
    """A client's stream, with the methods of gRPC's that clients use. Subclasses send messages.

    Args:
        path: path of the server's socket.
        method: path of the method, as gRPC's.
        metadata: metadata of the call.
        block: memory of the stream, released with it; its `descriptor` is sent to the server.

    Raises:
        OSError: nothing listens there.
    """

    def __init__(self, path: str, method: str, metadata: Metadata, block: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = path
        self._status: Status | None = None
        with contextlib.ExitStack() as opened:
            opened.enter_context(block)
            self._socket = opened.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            )
            self._socket.connect(path)
            packet = open_packet(method, metadata)
            socket.send_fds(self._socket, [packet], [block.descriptor])
            self._opened = opened.pop_all()

    async def _send(self, packet: bytes) -> None:
        # Where the stream has ended, the next `read` raises why.
        with contextlib.suppress(ConnectionError):
            try:
                self._socket.send(packet)
            except BlockingIOError:  # a server that does not read
                await self._loop.sock_sendall(self._socket, packet)

    async def done_writing(self) -> None:
        """End this side of the stream."""
        await self._send(bytes((DONE,)))

    async def _receive(self) -> bytes:
        """Return the next packet; none is the end of the server."""
        # A server that ends a stream before it has read all of it resets the connection. That is
        # said once, and its last packets come after.
        for _ in range(2):
            with contextlib.suppress(ConnectionError):
                return await self._loop.sock_recv(self._socket, LARGEST_PACKET)
        return b""

    def _ended(self, packet: bytes) -> Any:
        """Return EOF where the last packet has the status OK.

        Args:
            packet: the last one; none is the end of the server.

        Raises:
            grpc.aio.AioRpcError: the server ended the stream with another status, or has ended.
        """
        if self._status is None:
            self._status = grpc.StatusCode.UNAVAILABLE, f"the process at {self._path} ended", b""
            if packet:
                self._status = status_in(packet)
        code, details, error = self._status
        if code is grpc.StatusCode.OK:
            return grpc.aio.EOF
        raise status_error(code, details, [(ERROR_KEY, error)] if error else [])

    async def raise_if_fatal(self) -> None:
        """Raise the status with which the server refused the stream, if it was read."""
        if self._status is not None and self._status[0] in FATAL:
            self._ended(b"")

    def cancel(self) -> None:
        """End the stream. A thread that waits for a packet goes on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._opened.close()
