"""Local streams of large messages: requests and answers are in memory that the client lends.

A request lies in a slot, and its answer takes the place of the request: the server needs no memory
of its own, no peer waits for a slot of the other, and what is under way is bounded by the client.
Answers come in the order of the requests, one for each. Before the first request the server may
send one message in a packet, which answers the metadata.
"""

import asyncio
import contextlib
import mmap
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

from google.protobuf.message import DecodeError

from seedbed.rpc.channels import MAX_MESSAGE_BYTES
from seedbed.rpc.local.blocks import MessageBlock, OpenedMessageBlock, copy_pieces
from seedbed.rpc.local.client import READS, LocalConnection
from seedbed.rpc.local.packets import ANSWER, DONE, FIRST_ANSWER, LARGEST_PACKET, LENT, InvalidBlock
from seedbed.rpc.local.server import LocalMethod
from seedbed.rpc.local.server_stream import LocalServerStream
from seedbed.rpc.reconnect import FATAL
from seedbed.rpc.stream import Metadata, UnreadableMessage

# Requests under way.
SLOTS = 4
# Of a message beside its payload: numbers of a request.
_HEAD_BYTES = 256 * 1024

_LENT = struct.Struct("<BQQQ")  # offset, bytes of the request, bytes that the answer may take
_ANSWER = struct.Struct("<BQ")  # bytes of the answer


class Answer(NamedTuple):
    """Answer to a request.

    Attributes:
        data: the serialized answer, valid until `release`: bytes, or an array of bytes.
        release: gives the memory of the answer back. Event loop only.
    """

    data: Any
    release: Callable[[], None] = lambda: None


class MessageStream:
    """The client's end of a stream of pieces and `Answer`s, a `Stream`.

    Args:
        path: path of the server's socket.
        method: path of the method, as gRPC's.
        metadata: metadata of the call.
        payload_bytes: largest payload of a request or an answer.

    Raises:
        OSError: nothing listens there, or the system has no such memory.
    """

    def __init__(self, path: str, method: str, metadata: Metadata, payload_bytes: int) -> None:
        size = payload_bytes + _HEAD_BYTES
        self._block = MessageBlock(SLOTS, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._free: asyncio.Queue[int] = asyncio.Queue()
        for slot in range(SLOTS):
            self._free.put_nowait(slot)
        self._sent: deque[int] = deque()
        self._loop = asyncio.get_running_loop()
        self._connection = LocalConnection(path, method, metadata, self._block)
        self._waiting = 0  # coroutines that wait for the socket
        self._is_over = False

    async def send(self, pieces: Iterable[Any]) -> None:
        """Send a request once a slot is free, as of `Stream`.

        Args:
            pieces: of the serialized request: bytes, or contiguous arrays.

        Raises:
            InvalidBlock: the request is larger than a slot.
        """
        slot = await self._free.get()
        size = copy_pieces(pieces, self._block.slot(slot))
        self._sent.append(slot)
        room = self._block.slot_bytes
        await self._send(_LENT.pack(LENT, slot * room, size, room))

    async def _send(self, packet: bytes) -> None:
        # Where the stream has ended, the next `receive` raises why.
        with contextlib.suppress(OSError):
            try:
                self._connection.socket.send(packet)
            except BlockingIOError:  # a server that does not read
                with self._wait():
                    await self._loop.sock_sendall(self._connection.socket, packet)

    async def receive(self, timeout_s: float | None = None) -> Answer:
        """Return the next answer, as of `Stream`."""
        async with asyncio.timeout(timeout_s):
            packet = await self._packet()
        if packet and packet[0] == FIRST_ANSWER:
            return Answer(packet[1:])
        if not packet or packet[0] != ANSWER:
            raise self._connection.end_in(packet)
        try:
            size = _ANSWER.unpack(packet)[1]
        except struct.error as error:
            raise UnreadableMessage(error) from error
        if not self._sent or size > self._block.slot_bytes:
            raise UnreadableMessage(f"{size} bytes answer {len(self._sent)} requests")
        slot = self._sent.popleft()
        return Answer(self._block.slot(slot)[:size], partial(self._free.put_nowait, slot))

    async def _packet(self) -> bytes:
        """Return the next packet; none is the end of the server."""
        for _ in range(READS):
            with contextlib.suppress(OSError), self._wait():
                return await self._loop.sock_recv(self._connection.socket, LARGEST_PACKET)
        return b""

    @contextlib.contextmanager
    def _wait(self) -> Iterator[None]:
        """Return the context of a wait for the socket, which is not closed meanwhile."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            self._close_if_over()

    def _close_if_over(self) -> None:
        if self._is_over and not self._waiting:
            self._connection.close()

    def end(self) -> None:
        """End the stream, as of `Stream`: an event loop wakes nobody of a socket that is closed."""
        self._is_over = True
        self._connection.end()
        self._close_if_over()

    async def half_close(self) -> None:
        """End this side, as of `Stream`."""
        await self._send(bytes((DONE,)))

    async def raise_if_refused(self) -> None:
        """Raise the status of a refused stream, as of `Stream`, if it was received."""
        status = self._connection.status
        if status is not None and status[0] in FATAL:
            raise self._connection.end_in(b"")


class MessageServerStream(LocalServerStream):
    """The server's end of a stream; its block is an `OpenedMessageBlock`."""

    # As many as a client has slots: `receive` is never called again before they are answered.
    most_packets: ClassVar[int] = SLOTS + 1
    _block: OpenedMessageBlock

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._rooms: deque[tuple[int, int]] = deque()
        self._has_begun = False

    async def receive(self) -> memoryview:
        """Return the next request, in the client's memory, as of `ServerStream`."""
        packet = await self._receive()
        self._has_begun = True
        if packet[0] != LENT:
            raise self._end_in(packet)
        try:
            _, offset, size, room = _LENT.unpack(packet)
            data = self._block.part(offset, size)
            self._block.part(offset, room)
        except (struct.error, InvalidBlock) as error:
            raise DecodeError(str(error)) from error
        self._rooms.append((offset, room))
        return data.data

    def pack(self, pieces: Iterable[Any]) -> bytes:
        """Copy an answer to the place of the oldest request, and return its packet. Any thread.

        Before the first request the packet has the answer in it.

        Args:
            pieces: of the serialized answer: bytes, or contiguous arrays.

        Raises:
            InvalidBlock: the answer is larger than the request allows, or the second one to it.
        """
        if not self._has_begun:
            return bytes((FIRST_ANSWER,)) + b"".join(pieces)
        if not self._rooms:
            raise InvalidBlock("a request of this size has one answer: ask for less")
        offset, room = self._rooms.popleft()
        return _ANSWER.pack(ANSWER, copy_pieces(pieces, self._block.part(offset, room)))

    async def send(self, packet: bytes) -> None:
        """Send an answer. A client that is gone has cancelled the handler, or will at once."""
        await self._send(packet)

    def post(self, packet: bytes) -> None:
        """Send an answer, as of `ServerStream`."""
        self._post(packet)


def message_methods(
    service: str, serve: Mapping[str, Callable[[Any], Awaitable[None]]]
) -> dict[str, LocalMethod]:
    """Return methods of a local server.

    Args:
        service: name of the service, as gRPC's.
        serve: by the name of each method, what serves its streams.
    """
    block = partial(OpenedMessageBlock, most=SLOTS * (MAX_MESSAGE_BYTES + _HEAD_BYTES))
    return {
        f"/{service}/{name}": LocalMethod(one, MessageServerStream, block)
        for name, one in serve.items()
    }
