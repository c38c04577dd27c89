"""Server's end of a local stream, whatever its messages are."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import grpc
from google.protobuf.message import DecodeError

from seedbed.rpc.local.packets import DONE, LARGEST_PACKET, end_packet
from seedbed.rpc.stream import Metadata, StreamEnded
from seedbed.runtime.peer_log import PeerLog

log = logging.getLogger(__name__)

# Packets that wait to be read, above which a peer that does not keep to lock-step is held up.
_PACKETS = 4

_warnings = PeerLog(log)


class Ended(Exception):
    """The handler has ended the stream with a status."""


class LocalServerStream:
    """A `ServerStream`, but for the messages, which subclasses send and receive.

    Args:
        connection: socket of the stream.
        block: memory of the stream, which is closed with it.
        metadata: metadata of the call.
        path: path of the server's socket.

    Attributes:
        before_receive: called once a packet has come, before it is noted.
        most_packets: packets that may wait to be read, on either side.
    """

    most_packets: ClassVar[int] = _PACKETS
    crosses_network = False
    can_post = True

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
        self.before_receive: Callable[[], None] = lambda: None
        # A descriptor that is closed while a thread is about to send may be another stream's.
        self._sending = threading.Lock()
        self._unsent: deque[bytes] = deque()  # to a client that does not read
        self._all_sent = asyncio.Event()
        self._is_dropped = False  # because it does not read
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
        self.before_receive()
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

    def _end_in(self, packet: bytes) -> Exception:
        """Return what a packet without a message means.

        Returns:
            StreamEnded where the client has ended its side, DecodeError where the packet is of no
            kind that a client sends.
        """
        if packet[0] == DONE:
            return StreamEnded()
        return DecodeError(f"packet of kind {packet[0]}")

    def _post(self, packet: bytes) -> None:
        """Send a packet, or let the event loop send it once the client reads. Any thread.

        A client that is gone has cancelled the handler, or will at once. One that does not read
        its answers is ended.
        """
        with self._sending:
            if self._is_dropped:
                return
            if not self._unsent:
                try:
                    self._socket.send(packet)
                    return
                except BlockingIOError:
                    pass
                except OSError:
                    return
            self._unsent.append(packet)
            waiting = len(self._unsent)
            if waiting > self.most_packets:
                self._is_dropped = True
                self._unsent.clear()
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if waiting == 1:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._send_later)
        elif waiting > self.most_packets:
            text = "ended a local stream that left %d messages unread"
            _warnings.warning("unread", text, waiting)

    def _send_later(self) -> None:
        if self._socket.fileno() >= 0:  # not closed meanwhile
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        with self._sending:
            while self._unsent:
                try:
                    self._socket.send(self._unsent[0])
                except BlockingIOError:
                    return
                except OSError:
                    self._unsent.clear()
                    break
                self._unsent.popleft()
        self._loop.remove_writer(self._socket)
        self._all_sent.set()

    async def _send(self, packet: bytes) -> None:
        """Send a packet, and wait until the client has room for it."""
        self._all_sent.clear()
        self._post(packet)
        if self._unsent:
            await self._all_sent.wait()

    async def abort(
        self, code: grpc.StatusCode, details: str, trailing_metadata: Metadata = ()
    ) -> None:
        """End the stream with a status.

        Raises:
            Ended: always.
        """
        self._is_over = True
        await self._send(end_packet(code, details, trailing_metadata))
        raise Ended

    async def finish(self) -> None:
        """End the stream with the status OK."""
        self._is_over = True
        await self._send(end_packet(grpc.StatusCode.OK))

    def close(self) -> None:
        """Release the socket and the memory."""
        self._is_over = True
        self._pause()
        self._loop.remove_writer(self._socket)
        with self._sending:
            self._unsent.clear()
            self._socket.close()
        self._block.close()
