"""Local streams of `Act`: the arrays of a step are in shared memory, actions in packets."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from seedbed.rpc.channels import MAX_MESSAGE_BYTES
from seedbed.rpc.local.blocks import StepReader, StepWriter
from seedbed.rpc.local.client import LocalCall
from seedbed.rpc.local.packets import (
    ACTIONS,
    END,
    LARGEST_PACKET,
    MESSAGE,
    STEP,
    InvalidBlock,
    Metadata,
)
from seedbed.rpc.local.server import LocalContext, LocalMethod
from seedbed.rpc.step_codec import ACT, Actions, Step
from seedbed.v1 import inference_pb2 as wire

# How long a thread asks for actions before it sleeps, where the newest ones came nearly as soon.
# To wake up takes as long, and where actions take longer, the core is the model's.
_POLL_S = 1e-4

_STEP_HEAD = struct.Struct("<BQffIII")  # sequence, two durations, bytes of the three arrays
_ACTIONS_HEAD = struct.Struct("<BQ")  # sequence


class StepCall(LocalCall):
    """The actor's end of a stream.

    Args:
        path: path of the server's socket.
        metadata: metadata of the call.
        step_bytes: bytes of a step: its observation, rewards and flags.

    Raises:
        OSError: nothing listens there, or the system has no such memory.
    """

    def __init__(self, path: str, metadata: Metadata, step_bytes: int) -> None:
        self._block = StepWriter(step_bytes)
        self._is_quick = False  # whether the newest actions came soon after their step
        super().__init__(path, ACT, metadata, self._block)

    def _packet(self, message: Step | wire.ActorMessage) -> bytes:
        if not isinstance(message, Step):
            return bytes((MESSAGE,)) + message.SerializeToString()
        sizes = self._block.write(message)
        seconds = message.environment_seconds, message.wait_seconds
        return _STEP_HEAD.pack(STEP, message.sequence, *seconds, *sizes)

    async def write(self, message: Step | wire.ActorMessage) -> None:
        """Send a message. Where the stream has ended, the next `read` raises why."""
        await self._send(self._packet(message))

    async def read(self) -> Any:
        """Return the next `Actions` or LearnerMessage; `grpc.aio.EOF` after a status of OK.

        Raises:
            grpc.aio.AioRpcError: the server ended the stream with another status, or has ended.
        """
        return self._message(await self._receive())

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
        now = started = time.perf_counter()
        while self._is_quick and now < started + _POLL_S:
            try:
                return self._message(self._socket.recv(LARGEST_PACKET, socket.MSG_DONTWAIT))
            except BlockingIOError:
                os.sched_yield()
            except OSError:
                break
            now = time.perf_counter()
        data = self._wait()
        self._is_quick = time.perf_counter() < started + 2 * _POLL_S
        return self._message(data)

    def _wait(self) -> bytes:
        """Return the next packet; none is the end of the server.

        Raises:
            TimeoutError: nothing came in time.
        """
        for _ in range(2):  # as `_receive`
            try:
                return self._socket.recv(LARGEST_PACKET)
            except BlockingIOError:
                raise TimeoutError from None
            except OSError:  # closed by `cancel`, too
                continue
        return b""

    def _message(self, data: bytes) -> Any:
        kind = data[0] if data else END
        if kind == ACTIONS:
            return Actions(_ACTIONS_HEAD.unpack_from(data)[1], data[_ACTIONS_HEAD.size :])
        if kind == MESSAGE:
            return wire.LearnerMessage.FromString(data[1:])
        return self._ended(data)


class StepContext(LocalContext):
    """The learner's end of a stream; its block is a `StepReader`."""

    async def read(self) -> Any:
        """Return the next `Step` or ActorMessage; `grpc.aio.EOF` once the client's side has ended.

        Raises:
            google.protobuf.message.DecodeError: a packet is none of these.
        """
        data = await self._receive()
        kind = data[0]
        if kind == STEP:
            try:
                _, sequence, environment_s, wait_s, *sizes = _STEP_HEAD.unpack(data)
                arrays: tuple[memoryview, bytes, bytes] = self._block.read(
                    (sizes[0], sizes[1], sizes[2])
                )
            except (struct.error, InvalidBlock) as error:
                raise DecodeError(str(error)) from error
            return Step(sequence, *arrays, environment_s, wait_s)
        if kind == MESSAGE:
            return wire.ActorMessage.FromString(data[1:])
        return self._done(data)

    def deliver(self, sequence: int, action: bytes) -> None:
        """Send actions from another thread than the event loop's."""
        self._send_from_thread(_ACTIONS_HEAD.pack(ACTIONS, sequence) + action)

    async def write(self, message: Actions | wire.LearnerMessage) -> None:
        """Send a message. A client that is gone has cancelled the handler, or will at once."""
        if isinstance(message, Actions):
            packet = _ACTIONS_HEAD.pack(ACTIONS, message.sequence) + message.action
        else:
            packet = bytes((MESSAGE,)) + message.SerializeToString()
        await self._send(packet)


def act_method(servicer: Any, most: int = MAX_MESSAGE_BYTES) -> dict[str, LocalMethod]:
    """Return `Act` of a servicer as the method of a local server.

    Args:
        servicer: its method `Act` takes a request iterator, which is None, and a context.
        most: largest step, in bytes.
    """
    serve = partial(servicer.Act, None)
    return {ACT: LocalMethod(serve, StepContext, partial(StepReader, most=most))}
