"""Opens the streams of clients: through shared memory, by gRPC in a thread, or by `grpc.aio`."""

import asyncio
import contextlib
import functools
import importlib
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import grpc.aio

from seedbed.rpc import channels
from seedbed.rpc.asyncio_client import AsyncioStream
from seedbed.rpc.awaiting_client import AwaitingStream
from seedbed.rpc.credentials import Credentials
from seedbed.rpc.local.addresses import socket_of
from seedbed.rpc.local.messages import Answer, MessageStream
from seedbed.rpc.local.steps import StepStream
from seedbed.rpc.step_codec import (
    ACT,
    Actions,
    Step,
    act,
    read_learner_message,
    write_actor_message,
)
from seedbed.rpc.stream import BlockingStream, Metadata, Stream
from seedbed.v1 import inference_pb2 as wire

log = logging.getLogger(__name__)

ActorStream = BlockingStream[Step | wire.ActorMessage, Actions | wire.LearnerMessage]
_Act = Stream[Step | wire.ActorMessage, Actions | wire.LearnerMessage]


def open_actor_stream(
    address: str,
    credentials: Credentials,
    metadata: Metadata,
    step_bytes: int,
    loop: asyncio.AbstractEventLoop,
) -> ActorStream:
    """Open a stream of `Act`, for the thread that calls this.

    Args:
        address: `host:port` or `unix:PATH` of the learner.
        credentials: credentials of this process.
        metadata: metadata of the call.
        step_bytes: bytes of a step, for memory that is shared with a learner of this machine; 0 for
            messages that are too large for a packet.
        loop: event loop of another thread, for deadlines and for streams of `grpc.aio`.
    """
    path = socket_of(address)
    if path is not None and step_bytes:
        try:
            return StepStream(path, metadata, step_bytes)
        except OSError as error:
            log.debug("no shared memory with %s: %s", address, error)
    if (thread_stream := _thread_stream()) is not None:
        stream: ActorStream = thread_stream(
            address, credentials, ACT, metadata, write_actor_message, read_learner_message, loop
        )
        return stream

    @contextlib.asynccontextmanager
    async def opening() -> AsyncIterator[_Act]:
        async with channels.aio_channel(address, credentials) as channel:
            call: AsyncioStream[Any, Any] = AsyncioStream(act(channel)(metadata=metadata))
            try:
                yield call
            finally:
                call.end()

    return AwaitingStream(opening, loop)


@functools.cache
def _thread_stream() -> Any:
    """Return the class `ThreadStream`; None where the installed gRPC has not what it needs."""
    try:
        module = importlib.import_module("seedbed.rpc.thread_client")
        if module.is_available():
            return module.ThreadStream
    except ImportError as error:
        log.debug("no streams of gRPC for a thread: %s", error)
    log.warning("actors step through grpc.aio: gRPC %s has other calls", grpc.__version__)
    return None


def open_message_stream(
    address: str,
    channel: grpc.aio.Channel,
    method: str,
    metadata: Metadata,
    payload_bytes: int,
) -> Stream[Iterable[Any], Answer]:
    """Open a stream of large messages: pieces of serialized requests, and answers to them.

    Args:
        address: `host:port` or `unix:PATH` of the server.
        channel: connection to it.
        method: path of the method.
        metadata: metadata of the call.
        payload_bytes: largest payload of a request or an answer.
    """
    if (path := socket_of(address)) is not None:
        try:
            return MessageStream(path, method, metadata, payload_bytes)
        except OSError as error:
            log.debug("no shared memory with %s: %s", address, error)
    call = channel.stream_stream(method, request_serializer=b"".join, response_deserializer=Answer)
    return AsyncioStream(call(metadata=metadata))
