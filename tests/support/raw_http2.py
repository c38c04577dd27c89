"""A raw HTTP/2 client, which sends parts of gRPC messages and many streams on one connection."""

from __future__ import annotations

import base64
import socket
import struct
import threading
from collections.abc import Sequence

_ZEROS = bytes(1 << 22)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _string(text: bytes) -> bytes:
    """A string of HPACK, whose length takes seven bits, or more bytes."""
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest, size = len(text) - 127, bytearray([127])
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*size, rest]) + text


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field without indexing."""
    return b"\0" + _string(name) + _string(value)


def _field(key: str, value: str | bytes) -> tuple[bytes, bytes]:
    """A field of a call's metadata."""
    return key.encode(), value.encode() if isinstance(value, str) else base64.b64encode(value)


class RawHttp2:
    """One connection. A thread reads the windows that the server grants.

    Args:
        host: where to connect.
        port: where to connect.

    Attributes:
        sent: bytes of messages that were sent.
        ended: streams that the server ended.
    """

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=10)
        self._changed = threading.Condition()
        self._window, self._initial, self._largest = 65535, 65535, 16384
        self._streams: dict[int, int] = {}
        self._next = 1
        self.sent, self.ended, self.closed = 0, set[int](), False
        self.max_streams: int | None = None
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._send(PREFACE + _frame(_SETTINGS, 0, 0))
        threading.Thread(target=self._read, daemon=True).start()
        assert self._settled.wait(10)

    def _send(self, data: bytes) -> None:
        with self._lock:
            self._socket.sendall(data)

    def _read(self) -> None:
        try:
            file = self._socket.makefile("rb")
            while len(head := file.read(9)) == 9:
                size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                self._on_frame(kind, flags, int.from_bytes(head[5:], "big"), file.read(size))
        except OSError:
            pass
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        with self._changed:
            if kind == _SETTINGS and not flags & 1:
                for at in range(0, len(payload), 6):
                    key, value = struct.unpack_from(">HI", payload, at)
                    if key == 3:
                        self.max_streams = value
                    if key == 4:
                        for number in self._streams:
                            self._streams[number] += value - self._initial
                        self._initial = value
                    if key == 5:
                        self._largest = value
                self._send(_frame(_SETTINGS, 1, 0))
                self._settled.set()
            elif kind == _PING and not flags & 1:
                self._send(_frame(_PING, 1, 0, payload))
            elif kind == _WINDOW:
                grown = int.from_bytes(payload, "big")
                if stream:
                    self._streams[stream] = self._streams.get(stream, 0) + grown
                else:
                    self._window += grown
            elif kind == _RST or (kind == _HEADERS and flags & 1):
                self.ended.add(stream)
            self._changed.notify_all()

    def open(self, path: str, metadata: Sequence[tuple[str, str | bytes]] = ()) -> int:
        """Begin a call, and return the number of its stream.

        Args:
            path: the method, `/package.Service/Method`.
            metadata: of the call.
        """
        fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
                  (b":authority", b"x"), (b"te", b"trailers"),
                  (b"content-type", b"application/grpc"),
                  *(_field(*one) for one in metadata))  # fmt: skip
        with self._changed:
            number, self._next = self._next, self._next + 2
            self._streams[number] = self._initial
        self._send(_frame(_HEADERS, 4, number, b"".join(_literal(*field) for field in fields)))
        return number

    def half_message(self, stream: int, size: int, timeout_s: float) -> int:
        """Send all but one byte of a message, as far as the server grants windows.

        Args:
            stream: its number.
            size: bytes of the message.
            timeout_s: longest wait for a window.

        Returns:
            The bytes that were sent.
        """
        rest, sent = size + 4, 0  # the prefix has 5 bytes
        prefix = b"\0" + struct.pack(">I", size)
        while rest:
            with self._changed:
                if not self._changed.wait_for(lambda: self._room(stream), timeout_s):
                    return sent
                if self.closed or stream in self.ended:
                    return sent
                size = min(self._room(stream), rest)
                self._window -= size
                self._streams[stream] -= size
            try:
                self._send(_frame(_DATA, 0, stream, prefix + _ZEROS[: size - len(prefix)]))
            except OSError:
                return sent
            rest, sent, prefix = rest - size, sent + size, b""
            self.sent += size
        return sent

    def _room(self, stream: int) -> int:
        """Bytes that may be sent now; 1 where the stream has ended."""
        if self.closed or stream in self.ended:
            return 1
        return max(0, min(self._window, self._streams[stream], self._largest))

    def close(self) -> None:
        """Cut the connection."""
        self._socket.close()
