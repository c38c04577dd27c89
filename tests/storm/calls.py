"""Calls of a process that has a role's own credential: streams step by step, and cut messages."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from seedbed.rpc import channels
from seedbed.rpc.credentials import Credentials
from tests.support.raw_http2 import RawHttp2

ANSWER_S = 10.0  # a refusal takes no longer, on a machine that is busy
HOLD_S = 3.0


class Call:
    """One stream. Its sides go on when the caller says so.

    Args:
        channel: to the server.
        method: full name.
        metadata: of the call.
    """

    def __init__(
        self, channel: grpc.Channel, method: str, metadata: Sequence[tuple[str, Any]]
    ) -> None:
        self._out: queue.Queue[bytes | None] = queue.Queue()
        messages: Iterator[bytes] = iter(self._out.get, None)
        self._call = channel.stream_stream(method)(messages, metadata=metadata, timeout=60)

    def send(self, message: bytes) -> None:
        self._out.put(message)

    def answer(self) -> bytes | None:
        """Return the next answer; None once the stream has ended."""
        try:
            return bytes(next(self._call))
        except (grpc.RpcError, StopIteration):
            return None

    def end(self) -> grpc.StatusCode:
        """Read to the end, and return the status; DEADLINE_EXCEEDED where none comes in time."""
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self._call.cancel()

        timer = threading.Timer(ANSWER_S, give_up)
        timer.start()
        while self.answer() is not None:
            pass
        timer.cancel()
        self._out.put(None)
        code: grpc.StatusCode = self._call.code()
        return grpc.StatusCode.DEADLINE_EXCEEDED if is_late.is_set() else code

    def finish(self) -> grpc.StatusCode:
        """Half-close, and return the status."""
        self._out.put(None)
        return self.end()

    def cancel(self) -> None:
        self._out.put(None)
        self._call.cancel()


@dataclass(frozen=True)
class Entry:
    """A server that a credential opens.

    Attributes:
        address: `host:port`.
        credentials: of the role that may call its methods.
    """

    address: str
    credentials: Credentials

    @contextlib.contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        with channels.channel(self.address, self.credentials) as made:
            yield made

    @contextlib.contextmanager
    def call(self, method: str, *metadata: tuple[str, Any]) -> Iterator[Call]:
        """Open a stream on a connection of its own; it is cancelled at the end."""
        with self.channel() as channel:
            made = Call(channel, method, (*self.credentials.metadata(), *metadata))
            try:
                yield made
            finally:
                made.cancel()

    def half_messages(
        self, method: str, size: int, connections: int, *metadata: tuple[str, Any]
    ) -> int:
        """Send messages that lack one byte on all streams of some connections, and hold them.

        Returns:
            The bytes that the server has taken.
        """
        host, port = self.address.rsplit(":", 1)
        with contextlib.ExitStack() as stack:
            opened = []
            for _ in range(connections):
                connection = RawHttp2(host, int(port))
                stack.callback(connection.close)
                opened.append(connection)
            words = (*self.credentials.metadata(), *metadata)
            in_parallel(lambda one: _halves(one, method, size, words), opened)
            time.sleep(HOLD_S)
            return sum(one.sent for one in opened)


def _halves(connection: RawHttp2, method: str, size: int, metadata: Any) -> None:
    with contextlib.suppress(OSError):
        streams = [connection.open(method, metadata) for _ in range(8)]
        in_parallel(lambda stream: connection.half_message(stream, size, 2.0), streams)


def in_parallel(function: Callable[[Any], Any], values: Sequence[Any]) -> None:
    threads = [threading.Thread(target=function, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
