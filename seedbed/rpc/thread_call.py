"""Client's end of `Act` over gRPC for one thread, without the event loop.

`grpc.aio` passes each message between the thread of its completion queue, the event loop and the
thread of the environments, which takes three times the CPU time of this. Here one thread starts the
operations of a call and waits on the call's own completion queue. gRPC has no public call of this
kind for streams of both sides, so `is_available` tries the installed one.
"""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from seedbed.rpc import channels
from seedbed.rpc.credentials import Credentials
from seedbed.rpc.local.packets import Metadata
from seedbed.rpc.step_codec import ACT, Step, read_learner_message, write_actor_message
from seedbed.rpc.streams import status_code, status_error
from seedbed.v1 import inference_pb2 as wire

log = logging.getLogger(__name__)

_NO_FLAGS = 0
# Tags of the operations that end with the stream, and of each message's.
_INITIAL, _STATUS, _MESSAGE = "initial metadata", "status", "message"
# A socket on which nothing can listen, and the longest wait for the status of a call to it.
_NOWHERE = "unix:/dev/null/seedbed"
_TRIAL_S = 2.0


@functools.cache
def is_available() -> bool:
    """Return whether the installed gRPC has what `ThreadCall` needs, by a call that must fail.

    The call goes to a socket on which nothing listens, so that each operation is started and the
    status is read, within a few milliseconds and without a server.
    """
    try:
        with channels.channel(_NOWHERE) as channel:
            call = _open(channel, (), time.time() + _TRIAL_S)
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
        log.warning("actors step through grpc.aio: gRPC %s has other calls", grpc.__version__)
        return False


def _open(channel: grpc.Channel, metadata: Metadata, deadline: float | None) -> Any:
    """Start a call of `Act`, and the operations for its initial metadata and its status."""
    core: Any = channel._channel  # type: ignore[attr-defined]
    return core.segregated_call(
        cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
        ACT.encode(),
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


class ThreadCall:
    """Stream of `Act`: with the methods of `grpc.aio`'s, and `send` and `receive` for a thread.

    Args:
        address: `host:port` or `unix:PATH`.
        credentials: credentials of this process.
        metadata: metadata of the call.
        thread: executor of one thread, in which the operations of the coroutines run.
    """

    def __init__(
        self, address: str, credentials: Credentials, metadata: Metadata, thread: Executor
    ) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), thread
        self._channel = channels.channel(address, credentials)
        self._due = {_INITIAL, _STATUS}
        self._status: grpc.aio.AioRpcError | None = None
        self._is_over = False  # cancelled here
        self._timer: asyncio.TimerHandle | None = None
        # When `receive` began to wait, in seconds of `time.monotonic`, and how long it may.
        self._waits_since: float | None = None
        self._timeout_s = 0.0
        self._is_late = False
        self._call = _open(self._channel, metadata, None)

    async def write(self, message: Step | wire.ActorMessage) -> None:
        """Send a message. Where the stream has ended, the next `read` raises why."""
        await self._in_thread(
            self._operate, cygrpc.SendMessageOperation, write_actor_message(message)
        )

    async def read(self) -> Any:
        """Return the next `Actions` or LearnerMessage; `grpc.aio.EOF` after a status of OK.

        Raises:
            grpc.aio.AioRpcError: the learner ended the stream with another status, or is gone.
        """
        return await self._in_thread(self.receive)

    async def done_writing(self) -> None:
        """End this side of the stream."""
        await self._in_thread(self._operate, cygrpc.SendCloseFromClientOperation)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(self._thread, function, *arguments)

    @contextlib.contextmanager
    def blocking(self, timeout_s: float) -> Iterator[None]:
        """Return the context in which one thread calls `send` and `receive`.

        Args:
            timeout_s: longest wait of a `receive`.
        """
        self._timeout_s = timeout_s
        self._loop.call_soon_threadsafe(self._watch)
        try:
            yield
        finally:
            self._timeout_s = 0.0

    def _watch(self) -> None:
        """End the stream once `receive` has waited for too long: its queue knows no deadline."""
        if self._is_over or not self._timeout_s:
            return
        since = self._waits_since
        waited_s = 0.0 if since is None else time.monotonic() - since
        if waited_s >= self._timeout_s:
            self._is_late = True
            self._cancel()
        else:
            self._timer = self._loop.call_later(self._timeout_s - waited_s, self._watch)

    def send(self, message: Step) -> None:
        """Send a step, and ask for the message after it, in one call of the library."""
        self._start(
            cygrpc.SendMessageOperation(write_actor_message(message), _NO_FLAGS),
            cygrpc.ReceiveMessageOperation(_NO_FLAGS),
        )

    def receive(self) -> Any:
        """Do as `read` does.

        Raises:
            TimeoutError: nothing came in time, in a context of `blocking`.
        """
        if _MESSAGE not in self._due:
            self._start(cygrpc.ReceiveMessageOperation(_NO_FLAGS))
        self._waits_since = time.monotonic()
        try:
            event = self._wait_for(_MESSAGE)
            # The last one of a step's two operations, or the only one.
            data = event.batch_operations[-1].message() if event is not None else None
            return self._ended() if data is None else read_learner_message(data)
        except DecodeError as error:
            text = f"a message that is none: {error}"
            raise status_error(grpc.StatusCode.INTERNAL, text) from error
        finally:
            self._waits_since = None

    def _operate(self, operation: Any, *arguments: Any) -> None:
        """Start an operation that sends, and wait for its end."""
        self._start(operation(*arguments, _NO_FLAGS))
        self._wait_for(_MESSAGE)

    def _start(self, *operations: Any) -> None:
        """Start operations, unless the stream has ended."""
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

    def _ended(self) -> Any:
        """Return EOF where the stream ended with the status OK.

        Raises:
            TimeoutError: `_watch` ended it.
            grpc.aio.AioRpcError: it ended with another status.
        """
        self._wait_for(_STATUS)
        if self._is_late:
            raise TimeoutError
        assert self._status is not None
        if self._status.code() is grpc.StatusCode.OK:
            return grpc.aio.EOF
        raise self._status

    def cancel(self) -> None:
        """End the stream. A thread that waits for a message goes on."""
        if not self._is_over:
            self._is_over = True
            self._cancel()
            self._thread.submit(self._close)
        if self._timer is not None:
            self._timer.cancel()

    def _cancel(self) -> None:
        self._call.cancel(cygrpc.StatusCode.cancelled, "the actor ends the stream")

    def _close(self) -> None:
        """Close the channel, which waits for the events of its calls."""
        while self._due:
            self._wait_for(next(iter(self._due)))
        self._channel.close()
