"""Streams of `Act` between processes of one machine: packets of a unix socket, and shared memory.

A stream is what gRPC's is, with the same messages in the same order, metadata, half-close and
status, so that servicer and actor are the same over both. A step's arrays are in shared memory,
which the first packet carries; everything else is in packets of `SOCK_SEQPACKET`. A packet costs a
tenth of a gRPC message, and the end of a process is seen at once, because the kernel closes its
sockets.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from seedbed.rpc import channels
from seedbed.rpc.credentials import Credentials, Denial
from seedbed.rpc.shared_steps import InvalidBlock, StepReader, StepWriter
from seedbed.rpc.step_codec import Actions, Step
from seedbed.rpc.streams import HELLO_TIMEOUT_S, STATUS_LENGTH
from seedbed.rpc.versions import ERROR_KEY, FRONTEND_KEY
from seedbed.runtime.peer_log import PeerLog
from seedbed.runtime.text import printable
from seedbed.v1 import inference_pb2 as wire

log = logging.getLogger(__name__)

Metadata = Sequence[tuple[str, str | bytes]]

# First byte of a packet. The client opens; both sides send messages; the client ends its side, and
# the server ends the stream with a status.
_OPEN, _MESSAGE, _STEP, _ACTIONS, _DONE, _END = range(6)
_STEP_HEAD = struct.Struct("<BQffIII")  # sequence, two durations, bytes of the three arrays
_ACTIONS_HEAD = struct.Struct("<BQ")  # sequence
_END_HEAD = struct.Struct("<BIH")  # status code, bytes of its message
_PAIR_HEAD = struct.Struct("<HH?")  # bytes of key and value, whether the value is text
# As much as gRPC's metadata may have; messages other than steps are small.
_LARGEST_PACKET = 64 * 1024
# Packets that wait to be read, above which a peer that does not keep to lock-step is held up.
_PACKETS = 4
_BACKLOG = 1024
_METHOD = "/seedbed.v1.Inference/Act"
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def socket_of(address: str) -> str | None:
    """Return the path of the packets' socket beside gRPC's; None for an address of a network."""
    if not address.startswith("unix:"):
        return None
    return address.removeprefix("unix:") + ".shm"


def _pairs_to_bytes(metadata: Metadata) -> bytes:
    parts = []
    for key, value in metadata:
        name, data = key.encode(), value.encode() if isinstance(value, str) else value
        parts += [_PAIR_HEAD.pack(len(name), len(data), isinstance(value, str)), name, data]
    return b"".join(parts)


def _pairs_from_bytes(data: bytes) -> list[tuple[str, str | bytes]]:
    """Return metadata; raise ValueError or struct.error where the bytes are none."""
    pairs: list[tuple[str, str | bytes]] = []
    at = 0
    while at < len(data):
        key, value, is_text = _PAIR_HEAD.unpack_from(data, at)
        at += _PAIR_HEAD.size
        if at + key + value > len(data):
            raise ValueError("metadata is cut")
        name, content = data[at : at + key].decode(), data[at + key : at + key + value]
        pairs.append((name, content.decode() if is_text else content))
        at += key + value
    return pairs


# --- the actor's end ------------------------------------------------------------------------------


class LocalCall:
    """A client's stream, with the methods of gRPC's that actors use.

    Args:
        path: path of the server's socket.
        metadata: metadata of the call.
        step_bytes: bytes of a step: its observation, rewards and flags.

    Raises:
        OSError: nothing listens there, or the system has no such memory.
    """

    def __init__(self, path: str, metadata: Metadata, step_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = path
        self._status: tuple[grpc.StatusCode, str, bytes] | None = None
        with contextlib.ExitStack() as opened:
            self._block = opened.enter_context(StepWriter(step_bytes))
            self._socket = opened.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            )
            self._socket.connect(path)
            packet = bytes((_OPEN,)) + _pairs_to_bytes(metadata)
            socket.send_fds(self._socket, [packet], [self._block.descriptor])
            self._opened = opened.pop_all()

    def _packet(self, message: Step | wire.ActorMessage) -> bytes:
        if not isinstance(message, Step):
            return bytes((_MESSAGE,)) + message.SerializeToString()
        sizes = self._block.write(message)
        seconds = message.environment_seconds, message.wait_seconds
        return _STEP_HEAD.pack(_STEP, message.sequence, *seconds, *sizes)

    async def write(self, message: Step | wire.ActorMessage) -> None:
        """Send a message. Where the stream has ended, the next `read` raises why."""
        await self._send(self._packet(message))

    async def _send(self, packet: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            await self._loop.sock_sendall(self._socket, packet)

    async def write_invalid(self) -> None:
        """Send a message that is none, in the place of one that could not be read."""
        await self._send(bytes((_MESSAGE, 0xFF)))

    async def done_writing(self) -> None:
        """End this side of the stream."""
        await self._send(bytes((_DONE,)))

    async def read(self) -> Any:
        """Return the next `Actions` or LearnerMessage; `grpc.aio.EOF` after a status of OK.

        Raises:
            grpc.aio.AioRpcError: the server ended the stream with another status, or has ended.
        """
        try:
            data = await self._loop.sock_recv(self._socket, _LARGEST_PACKET)
        except ConnectionError:
            data = b""
        return self._message(data)

    @contextlib.contextmanager
    def blocking(self, timeout_s: float) -> Iterator[None]:
        """Return the context in which one thread calls `send` and `receive`, and no event loop.

        Args:
            timeout_s: longest wait of a `receive`.
        """
        whole, rest = divmod(timeout_s, 1)
        limit = struct.pack("@ll", int(whole), int(1e6 * rest))
        self._socket.setblocking(True)
        # The kernel's limit: Python's own takes a system call more.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        try:
            yield
        finally:
            if self._socket.fileno() >= 0:
                self._socket.setblocking(False)

    def send(self, message: Step) -> None:
        """Do as `write` does, in a context of `blocking`."""
        with contextlib.suppress(OSError):
            self._socket.send(self._packet(message))

    def receive(self) -> Any:
        """Do as `read` does, in a context of `blocking`.

        Raises:
            TimeoutError: nothing came in time.
        """
        try:
            data = self._socket.recv(_LARGEST_PACKET)
        except BlockingIOError:
            raise TimeoutError from None
        except OSError:  # closed by `cancel`, too
            data = b""
        return self._message(data)

    def _message(self, data: bytes) -> Any:
        """Return what a packet holds; none is the end of the server."""
        kind = data[0] if data else _END
        if kind == _ACTIONS:
            return Actions(_ACTIONS_HEAD.unpack_from(data)[1], data[_ACTIONS_HEAD.size :])
        if kind == _MESSAGE:
            return wire.LearnerMessage.FromString(data[1:])
        if self._status is None:
            self._status = grpc.StatusCode.UNAVAILABLE, f"the process at {self._path} ended", b""
            if data:
                _, number, size = _END_HEAD.unpack_from(data)
                rest = data[_END_HEAD.size :]
                code = _CODES.get(number, grpc.StatusCode.UNKNOWN)
                self._status = code, rest[:size].decode(errors="replace"), rest[size:]
        code, details, error = self._status
        if code is grpc.StatusCode.OK:
            return grpc.aio.EOF
        trailing = grpc.aio.Metadata(*([(ERROR_KEY, error)] if error else []))
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details=details)

    def cancel(self) -> None:
        """End the stream. A thread that waits for a packet goes on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._opened.close()


# --- the learner's end ----------------------------------------------------------------------------


class _Ended(Exception):
    """The handler has ended the stream with a status."""


class LocalContext:
    """A server's stream, with the methods of gRPC's servicer context that servicers use.

    Args:
        connection: socket of the stream.
        block: memory of its steps.
        metadata: metadata of the call.
        path: path of the server's socket.
        frontend: number of the front end that relays the stream; None: an actor of this machine.

    Attributes:
        frontend: as the argument.
    """

    def __init__(
        self,
        connection: socket.socket,
        block: StepReader,
        metadata: Metadata,
        path: str,
        frontend: int | None = None,
    ) -> None:
        self.frontend = frontend
        self._socket, self._block, self._metadata, self._path = connection, block, metadata, path
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._packets: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._reads = False
        self._is_over = False
        self._resume()

    def peer(self) -> str:
        """Return the address of the peer, for logs."""
        if self.frontend is not None:
            return f"front end {self.frontend}"
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
            data = self._socket.recv(_LARGEST_PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the peer has ended, as gRPC cancels the handler then
            self._pause()
            if self._task is not None and not self._is_over:
                self._task.cancel()
            return
        self._packets.append(data)
        if len(self._packets) >= _PACKETS:
            self._pause()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self) -> Any:
        """Return the next `Step` or ActorMessage; `grpc.aio.EOF` once the client's side has ended.

        Raises:
            google.protobuf.message.DecodeError: a packet is none of these.
        """
        while not self._packets:
            self._waiter = self._loop.create_future()
            await self._waiter
        data = self._packets.popleft()
        self._resume()
        kind = data[0]
        if kind == _STEP:
            try:
                _, sequence, environment_s, wait_s, *sizes = _STEP_HEAD.unpack(data)
                arrays = self._block.read((sizes[0], sizes[1], sizes[2]))
            except (struct.error, InvalidBlock) as error:
                raise DecodeError(str(error)) from error
            return Step(sequence, *arrays, environment_s, wait_s)
        if kind == _MESSAGE:
            return wire.ActorMessage.FromString(data[1:])
        if kind == _DONE:
            return grpc.aio.EOF
        raise DecodeError(f"packet of kind {kind}")

    async def write(self, message: Actions | wire.LearnerMessage) -> None:
        """Send a message. A client that is gone has cancelled the handler, or will at once."""
        if isinstance(message, Actions):
            packet = _ACTIONS_HEAD.pack(_ACTIONS, message.sequence) + message.action
        else:
            packet = bytes((_MESSAGE,)) + message.SerializeToString()
        await self._send(packet)

    async def _send(self, packet: bytes) -> None:
        try:
            self._socket.send(packet)
        except BlockingIOError:  # a client that does not read
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._socket, packet)
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
        text = details.encode()[:STATUS_LENGTH]
        error = next((value for key, value in trailing_metadata if key == ERROR_KEY), b"")
        assert isinstance(error, bytes)
        await self._send(_END_HEAD.pack(_END, code.value[0], len(text)) + text + error)
        raise _Ended

    async def finish(self) -> None:
        """End the stream with the status OK."""
        self._is_over = True
        await self._send(_END_HEAD.pack(_END, grpc.StatusCode.OK.value[0], 0))

    def close(self) -> None:
        """Release the socket."""
        self._is_over = True
        self._pause()
        self._socket.close()


class LocalServer:
    """Server of local streams. Event loop only.

    Args:
        handle: serves a stream, as a servicer's `Act` with its context.
        credentials: judge the streams, as they judge gRPC's.
        on_denied: called with each denial.
        max_message_bytes: largest step.
        of_frontends: its clients are front ends, which say their numbers.
    """

    def __init__(
        self,
        handle: Callable[[Any], Awaitable[None]],
        credentials: Credentials,
        on_denied: Callable[[Denial], None],
        max_message_bytes: int = channels.MAX_MESSAGE_BYTES,
        of_frontends: bool = False,
    ) -> None:
        self._of_frontends = of_frontends
        self._handle, self._credentials = handle, credentials
        self._on_denied, self._most = on_denied, max_message_bytes
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
                # Of a learner that was killed, since gRPC's own socket is bound already.
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
                metadata, block = await self._open(connection)
                opened.callback(block.close)
                number = dict(metadata).get(FRONTEND_KEY, "") if self._of_frontends else None
                frontend = None if number is None else int(number)
            except (TimeoutError, ValueError, OSError, struct.error) as error:
                text = printable(str(error) or "nothing came")
                self._log.warning("open", "a local stream cannot be opened: %s", text)
                return
            context = LocalContext(connection, block, metadata, self._path, frontend)
            opened.callback(context.close)
            try:
                denial = self._credentials.denial(_METHOD, metadata, {})
                if denial is not None:
                    self._on_denied(denial)
                    await context.abort(denial.code, denial.message)
                await self._handle(context)
                await context.finish()
            except (_Ended, asyncio.CancelledError):
                return
            except Exception:
                log.exception("a local stream ends")
                with contextlib.suppress(_Ended):
                    await context.abort(grpc.StatusCode.UNKNOWN, "an error of the learner")

    async def _open(self, connection: socket.socket) -> tuple[Metadata, StepReader]:
        """Return the metadata and the block of the first packet."""
        readable = asyncio.Event()
        self._loop.add_reader(connection, readable.set)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await readable.wait()
        finally:
            self._loop.remove_reader(connection)
        data, descriptors, _, _ = socket.recv_fds(connection, _LARGEST_PACKET, 2)
        if len(descriptors) != 1 or not data or data[0] != _OPEN:
            for descriptor in descriptors:
                os.close(descriptor)
            raise ValueError(f"{len(descriptors)} descriptors in a first packet of {data[:1]!r}")
        block = StepReader(descriptors[0], self._most)
        try:
            return _pairs_from_bytes(data[1:]), block
        except BaseException:
            block.close()
            raise

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
