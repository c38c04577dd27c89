"""Client's end of a local stream, whatever its messages are."""

import contextlib
import socket
import struct
import threading
from typing import Any

import grpc

from seedbed.rpc.local.packets import Status, open_packet, status_in
from seedbed.rpc.stream import Metadata, StreamEnded, UnreadableMessage
from seedbed.rpc.streams import status_error
from seedbed.rpc.versions import ERROR_KEY

# Reads of a packet before the server is taken to have ended. One that ends a stream before it has
# read all of it resets the connection: the first read raises that, and the last packets come after.
READS = 2


class LocalConnection:
    """Socket and memory of a client's stream, and the status with which the stream ends.

    Args:
        path: path of the server's socket.
        method: path of the method, as gRPC's.
        metadata: metadata of the call.
        block: memory of the stream, released with it; its `descriptor` is sent to the server.

    Attributes:
        socket: the socket, which blocks nobody.
        status: code, message and error of the end, once it was read.

    Raises:
        OSError: nothing listens there.
    """

    def __init__(self, path: str, method: str, metadata: Metadata, block: Any) -> None:
        self._path = path
        self._ending = threading.Lock()
        self._is_over = False  # ended here
        self.status: Status | None = None
        with contextlib.ExitStack() as opened:
            opened.enter_context(block)
            self.socket = opened.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            )
            self.socket.connect(path)
            packet = open_packet(method, metadata)
            socket.send_fds(self.socket, [packet], [block.descriptor])
            self._opened = opened.pop_all()

    def end_in(self, packet: bytes) -> Exception:
        """Return how the stream has ended, again on further calls.

        Args:
            packet: the last one; none is the end of the server.

        Returns:
            StreamEnded where the status is OK, `grpc.aio.AioRpcError` where it is another one or
            the server or this end has ended.

        Raises:
            UnreadableMessage: the packet has no status.
        """
        if self.status is None:
            self.status = self._status_in(packet)
        code, details, error = self.status
        if code is grpc.StatusCode.OK:
            return StreamEnded()
        return status_error(code, details, [(ERROR_KEY, error)] if error else [])

    def _status_in(self, packet: bytes) -> Status:
        if packet:
            try:
                return status_in(packet)
            except struct.error as error:
                raise UnreadableMessage(error) from error
        if self._is_over:
            return grpc.StatusCode.CANCELLED, "the client ended it", b""
        return grpc.StatusCode.UNAVAILABLE, f"the process at {self._path} ended", b""

    def end(self) -> None:
        """End the stream, so that a thread that waits for a packet goes on. Any thread."""
        with self._ending, contextlib.suppress(OSError):
            self._is_over = True
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End and release the stream."""
        self.end()
        with self._ending:
            self._opened.close()
