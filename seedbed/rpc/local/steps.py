"""Local streams of `Act`: the arrays of a step are in shared memory, actions in packets."""

import contextlib
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from seedbed.rpc.channels import MAX_MESSAGE_BYTES
from seedbed.rpc.local.blocks import StepReader, StepWriter
from seedbed.rpc.local.client import READS, LocalConnection
from seedbed.rpc.local.packets import (
    ACTIONS,
    DONE,
    END,
    LARGEST_PACKET,
    MESSAGE,
    STEP,
    InvalidBlock,
)
from seedbed.rpc.local.server import LocalMethod
from seedbed.rpc.local.server_stream import LocalServerStream
from seedbed.rpc.step_codec import ACT, Actions, Step
from seedbed.rpc.stream import Metadata, UnreadableMessage
from seedbed.v1 import inference_pb2 as wire

# How long a thread asks for actions before it sleeps, where the newest ones came nearly as soon.
# To wake up takes as long, and where actions take longer, the core is the model's.
_POLL_S = 1e-4

_STEP_HEAD = struct.Struct("<BQffIII")  # sequence, two durations, bytes of the three arrays
_ACTIONS_HEAD = struct.Struct("<BQ")  # sequence


class StepStream:
    """The actor's end of a stream, a `BlockingStream`.

    Args:
        path: path of the server's socket.
        metadata: metadata of the call.
        step_bytes: bytes of a step: its observation, rewards and flags.

    Raises:
        OSError: nothing listens there, or the system has no such memory.
    """

    def __init__(self, path: str, metadata: Metadata, step_bytes: int) -> None:
        self._block = StepWriter(step_bytes)
        self._connection = LocalConnection(path, ACT, metadata, self._block)
        self._socket = self._connection.socket
        self._socket.setblocking(True)
        self._timeout_s = 0.0  # the kernel's limit of a wait
        self._is_quick = False  # whether the newest actions came soon after their step
        self.end, self.close = self._connection.end, self._connection.close

    def send(self, message: Step | wire.ActorMessage, is_last: bool = False) -> None:
        """Send a message, as of `BlockingStream`."""
        with contextlib.suppress(OSError):
            self._socket.send(self._packet(message))
            if is_last:
                self._socket.send(bytes((DONE,)))

    def _packet(self, message: Step | wire.ActorMessage) -> bytes:
        if not isinstance(message, Step):
            return bytes((MESSAGE,)) + message.SerializeToString()
        sizes = self._block.write(message)
        seconds = message.environment_seconds, message.wait_seconds
        return _STEP_HEAD.pack(STEP, message.sequence, *seconds, *sizes)

    def receive(self, timeout_s: float) -> Actions | wire.LearnerMessage:
        """Return the next message, as of `BlockingStream`."""
        if timeout_s != self._timeout_s:
            self._limit(timeout_s)
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

    def _limit(self, timeout_s: float) -> None:
        """Set the kernel's limit of a wait: Python's own takes a system call more."""
        self._timeout_s = timeout_s
        whole, rest = divmod(timeout_s, 1)
        limit = struct.pack("@ll", int(whole), max(int(1e6 * rest), 1))
        with contextlib.suppress(OSError):  # ended
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, limit)

    def _wait(self) -> bytes:
        """Return the next packet; none is the end of the server.

        Raises:
            TimeoutError: nothing came in time.
        """
        for _ in range(READS):
            try:
                return self._socket.recv(LARGEST_PACKET)
            except BlockingIOError:
                raise TimeoutError from None
            except OSError:  # closed by `end`, too
                continue
        return b""

    def _message(self, data: bytes) -> Actions | wire.LearnerMessage:
        kind = data[0] if data else END
        try:
            if kind == ACTIONS:
                return Actions(_ACTIONS_HEAD.unpack_from(data)[1], data[_ACTIONS_HEAD.size :])
            if kind == MESSAGE:
                return wire.LearnerMessage.FromString(data[1:])
        except (struct.error, DecodeError) as error:
            raise UnreadableMessage(error) from error
        raise self._connection.end_in(data)


class StepServerStream(LocalServerStream):
    """The learner's end of a stream; its block is a `StepReader`."""

    async def receive(self) -> Step | wire.ActorMessage:
        """Return the next message, as of `ServerStream`."""
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
        raise self._end_in(data)

    async def send(self, message: Actions | wire.LearnerMessage) -> None:
        """Send a message. A client that is gone has cancelled the handler, or will at once."""
        await self._send(_packet_of(message))

    def post(self, message: Actions | wire.LearnerMessage) -> None:
        """Send a message, as of `ServerStream`."""
        self._post(_packet_of(message))


def _packet_of(message: Actions | wire.LearnerMessage) -> bytes:
    if isinstance(message, Actions):
        return _ACTIONS_HEAD.pack(ACTIONS, message.sequence) + message.action
    return bytes((MESSAGE,)) + message.SerializeToString()


def act_method(
    serve: Callable[[Any], Awaitable[None]], most: int = MAX_MESSAGE_BYTES
) -> dict[str, LocalMethod]:
    """Return `Act` as the method of a local server.

    Args:
        serve: serves a stream.
        most: largest step, in bytes.
    """
    return {ACT: LocalMethod(serve, StepServerStream, partial(StepReader, most=most))}
