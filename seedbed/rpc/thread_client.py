"""Client's end of a gRPC stream for one thread, without the event loop.

`grpc.aio` passes each message between the thread of its completion queue, the event loop and the
thread of the environments, which takes three times the CPU time of this. Here one thread starts the
operations of a call and waits on the call's own completion queue. gRPC has no public call of this
kind for streams of both sides, so `is_available` tries the installed one. This is the only file
that uses gRPC's private classes: without it `stream_factory` opens streams of `grpc.aio`.
"""

import asyncio
import functools
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from seedbed.rpc import channels
from seedbed.rpc.credentials import Credentials
from seedbed.rpc.stream import Metadata, StreamEnded, UnreadableMessage
from seedbed.rpc.streams import status_code, status_error

log = logging.getLogger(__name__)

Sent = TypeVar("Sent")
Received = TypeVar("Received")

_NO_FLAGS = 0
# Tags of the operations that end with the stream, and of each message's.
_INITIAL, _STATUS, _MESSAGE = "initial metadata", "status", "message"
# A socket on which nothing can listen, and the longest wait for the status of a call to it.
_NOWHERE = "unix:/dev/null/seedbed"
_TRIAL_S = 2.0


@functools.cache
def is_available() -> bool:
    """Return whether the installed gRPC has what `ThreadStream` needs, by a call that must fail.

    The call goes to a socket on which nothing listens, so that each operation is started and the
    status is read, within a few milliseconds and without a server.
    """
    try:
        with channels.channel(_NOWHERE) as channel:
            call = _open(channel, "/seedbed/Trial", (), time.time() + _TRIAL_S)
            call.operate((cygrpc.SendMessageOperation(b"", _NO_FLAGS),), _MESSAGE)
            due = {_INITIAL, _STATUS, _MESSAGE}
            while due:
                event = call.next_event()
                due.remove(event.tag)
                if event.tag == _STATUS:
                    status = event.batch_operations[0]
            code = status_code(status.code())
            operations = cygrpc.ReceiveMessageOperation, cygrpc.SendCloseFromClientOperation
            return code is grpc.StatusCode.UNAVAILABLE and all(map(callable, operations))
    except Exception:
        log.debug("gRPC %s has other calls", grpc.__version__, exc_info=True)
        return False


def _open(channel: grpc.Channel, method: str, metadata: Metadata, deadline: float | None) -> Any:
    """Start a call, and the operations for its initial metadata and its status."""
    core: Any = channel._channel  # type: ignore[attr-defined]
    return core.segregated_call(
        cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
        method.encode(),
        None,  # host
        deadline,
        None,  # metadata of call credentials
        None,  # call credentials
        (
            (
                (
                    cygrpc.SendInitialMetadataOperation(tuple(metadata), _NO_FLAGS),
                    cygrpc.ReceiveInitialMetadataOperation(_NO_FLAGS),
                ),
                _INITIAL,
            ),
            ((cygrpc.ReceiveStatusOnClientOperation(_NO_FLAGS),), _STATUS),
        ),
        None,  # context of a trace
    )


class ThreadStream(Generic[Sent, Received]):
    """A `BlockingStream` over gRPC.

    Args:
        address: `host:port` or `unix:PATH`.
        credentials: credentials of this process.
        method: path of the method.
        metadata: metadata of the call.
        write: encodes a message.
        read: decodes a message.
        loop: event loop of another thread, for the deadlines of `receive`.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        method: str,
        metadata: Metadata,
        write: Callable[[Sent], bytes],
        read: Callable[[bytes], Received],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._write, self._read, self._loop = write, read, loop
        self._channel = channels.channel(address, credentials)
        self._due = {_INITIAL, _STATUS}
        self._status: grpc.aio.AioRpcError | None = None
        self._ending = threading.Lock()
        self._is_over = False  # ended here
        # Until when `receive` may wait, in seconds of `time.monotonic`: the queue has no deadline.
        self._due_s: float | None = None
        self._watched_s = math.inf  # when `_watch` runs next
        self._timer: asyncio.TimerHandle | None = None
        self._is_late = False
        self._call = _open(self._channel, method, metadata, None)

    def send(self, message: Sent, is_last: bool = False) -> None:
        """Send a message, and request the one after it, in one call of the library."""
        operations = [cygrpc.SendMessageOperation(self._write(message), _NO_FLAGS)]
        if is_last:
            operations.append(cygrpc.SendCloseFromClientOperation(_NO_FLAGS))
        self._start(*operations)

    def receive(self, timeout_s: float) -> Received:
        """Return the next message, as of `BlockingStream`."""
        if _MESSAGE not in self._due:
            self._start()
        self._due_s = due_s = time.monotonic() + timeout_s
        if due_s < self._watched_s:
            self._watched_s = due_s
            self._loop.call_soon_threadsafe(self._watch)
        try:
            event = self._wait_for(_MESSAGE)
            # The last one of the operations, or the only one.
            data = event.batch_operations[-1].message() if event is not None else None
            return self._ended() if data is None else self._read(data)
        except DecodeError as error:
            raise UnreadableMessage(error) from error
        finally:
            self._due_s = None

    def _watch(self) -> None:
        """End the stream once `receive` has waited for too long. Event loop only."""
        if self._timer is not None:
            self._timer.cancel()
        # Before the deadline is read, so that a `receive` that begins now watches again.
        self._watched_s = math.inf
        due_s = self._due_s
        if self._is_over or due_s is None:
            return
        left_s = due_s - time.monotonic()
        if left_s <= 0:
            self._is_late = True
            self._cancel()
        else:
            self._watched_s = due_s
            self._timer = self._loop.call_later(left_s, self._watch)

    def _start(self, *operations: Any) -> None:
        """Start operations and the receipt of a message, unless the stream has ended."""
        operations = (*operations, cygrpc.ReceiveMessageOperation(_NO_FLAGS))
        if _STATUS in self._due and self._call.operate(operations, _MESSAGE):
            self._due.add(_MESSAGE)

    def _wait_for(self, tag: str) -> Any:
        """Return the event of a tag; None if the stream ended without the operations of it."""
        while tag in self._due:
            event = self._call.next_event()
            self._due.remove(event.tag)
            if event.tag == _STATUS:
                status = event.batch_operations[0]
                self._status = status_error(
                    status_code(status.code()),
                    status.details() or "",
                    status.trailing_metadata() or (),
                )
            if event.tag == tag:
                return event
        return None

    def _ended(self) -> Received:
        """Raise how the stream has ended."""
        self._wait_for(_STATUS)
        if self._is_late:
            raise TimeoutError
        assert self._status is not None
        if self._status.code() is grpc.StatusCode.OK:
            raise StreamEnded
        raise self._status

    def end(self) -> None:
        """End the stream, as of `BlockingStream`."""
        with self._ending:
            if not self._is_over:
                self._is_over = True
                self._cancel()

    def _cancel(self) -> None:
        self._call.cancel(cygrpc.StatusCode.cancelled, "the client ends the stream")

    def close(self) -> None:
        """Release the stream, as of `BlockingStream`."""
        self.end()
        while self._due:
            self._wait_for(next(iter(self._due)))
        self._channel.close()
