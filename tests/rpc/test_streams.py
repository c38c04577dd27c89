"""A stream's first message, the status with which it ends, and how its client comes back."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from seedbed.rpc import channels
from seedbed.rpc.asyncio_client import AsyncioStream
from seedbed.rpc.asyncio_server import AsyncioServerStream
from seedbed.rpc.reconnect import FATAL, Attempts, describe
from seedbed.rpc.streams import OpenStreams, StreamRejected
from tests.support.streams import serving

CODE = grpc.StatusCode


def serve(
    handle: Callable[[Any], Awaitable[None]],
    client: Callable[[Any], Awaitable[Any]],
    opened: OpenStreams,
    begun: Callable[[], None] = lambda: None,
) -> Any:
    """Run one stream of bytes between `handle` and `client`; return what `client` does."""

    async def both() -> Any:
        async def stream(context: Any) -> None:
            asyncio.get_running_loop().call_later(0.1, begun)
            served: AsyncioServerStream[bytes, bytes] = AsyncioServerStream(context)
            await opened.serve(served, lambda: handle(served), "Test")

        path = "/test.Test/Stream"
        async with serving(path, stream) as address, channels.aio_channel(address) as channel:
            return await client(AsyncioStream(channel.stream_stream(path)()))

    return asyncio.run(both())


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call.receive()
    return error.value.code(), str(error.value.details())


async def raise_(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("7 is odd"), CODE.INVALID_ARGUMENT, "Test: 7 is odd"),
        (StreamRejected("another network"), CODE.INVALID_ARGUMENT, "another network"),
        (
            StreamRejected("no slots", CODE.RESOURCE_EXHAUSTED),
            CODE.RESOURCE_EXHAUSTED,
            "no slots",
        ),
    ],
)
def test_exception_becomes_a_status(error: Exception, code: grpc.StatusCode, text: str) -> None:
    rejections: list[StreamRejected] = []
    opened = OpenStreams("it stops", rejections.append)
    assert serve(lambda _: raise_(error), status_of, opened) == (code, text)
    assert [str(rejection) for rejection in rejections] == [text]


def test_error_of_this_process_is_no_rejection() -> None:
    opened = OpenStreams("it stops", lambda _: pytest.fail("called"), invalid=())
    assert serve(lambda _: raise_(ValueError("x")), status_of, opened)[0] is CODE.UNKNOWN


def test_close_ends_streams_now_and_later() -> None:
    rejections: list[StreamRejected] = []
    opened = OpenStreams("it stops", rejections.append)
    for _ in range(2):
        stopped = serve(lambda _: asyncio.sleep(60), status_of, opened, opened.close)
        assert stopped == (CODE.UNAVAILABLE, "it stops")
    assert not rejections  # it is no fault of the peer


def test_stream_that_ends_amid_a_write_gets_its_status() -> None:
    """gRPC takes no status while a message is being written."""
    opened, ended = OpenStreams("it stops"), asyncio.Event()

    def end() -> None:
        opened.close()
        ended.set()

    async def handle(stream: Any) -> None:
        while True:
            await opened.write(stream, bytes(16 * 1024 * 1024))  # more than the window

    async def client(call: Any) -> tuple[grpc.StatusCode, str]:
        await ended.wait()
        asyncio.get_running_loop().call_later(10.0, call.end)  # CANCELLED: it has no status
        try:
            while True:
                await call.receive()
        except grpc.aio.AioRpcError as error:
            return error.code(), str(error.details())

    assert serve(handle, client, opened, end) == (CODE.UNAVAILABLE, "it stops")


def test_write_that_fails_after_its_stream_is_not_logged() -> None:
    """A peer that left amid a write made a traceback each time."""
    unhandled: list[Any] = []

    class Stream:
        async def send(self, _: bytes) -> None:
            await asyncio.sleep(0.01)
            raise RuntimeError("the peer has left")

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, words: unhandled.append(words))
        stream: Any = Stream()
        writing = asyncio.create_task(OpenStreams("stop").write(stream, b""))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    asyncio.run(leave())
    gc.collect()
    assert not unhandled


def test_peer_that_leaves_cancels_the_handler() -> None:
    opened, cancelled = OpenStreams("it stops"), []

    async def handle(stream: Any) -> None:
        await stream.send(b"x")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def client(call: Any) -> None:
        assert await call.receive() == b"x"
        call.end()
        await asyncio.sleep(0.2)

    serve(handle, client, opened)
    assert cancelled == [True]


def test_end_of_a_stream_is_an_error_of_its_client() -> None:
    async def client(call: Any) -> None:
        with pytest.raises(ConnectionError, match="it ended the stream"):
            await call.receive()
        await call.send(b"x")  # no error: the next read raises it

    serve(lambda _: asyncio.sleep(0), client, OpenStreams("it stops"))


def test_pauses_grow_and_are_reset() -> None:
    async def pauses() -> list[float]:
        found, attempts = [], Attempts(0.01, 0.04, jitter=False)
        started = time.monotonic()
        async for _ in attempts:
            found.append(attempts.pause_s)
            if len(found) == 4:
                attempts.reset()
            if len(found) == 5:
                attempts.skip_pause()
            if len(found) == 6:
                await asyncio.sleep(0.05)  # longer than the longest pause
            if len(found) == 8:
                break
        assert time.monotonic() - started >= 0.01 + 0.02 + 0.04 + 0.01 + 0.02 + 0.05 + 0.01
        return found

    assert asyncio.run(pauses()) == [0.01, 0.02, 0.04, 0.04, 0.02, 0.02, 0.02, 0.04]


def test_stop_ends_the_pause() -> None:
    async def attempts() -> int:
        stop, count = asyncio.Event(), 0
        asyncio.get_running_loop().call_later(0.05, stop.set)
        async for _ in Attempts(60.0, 60.0, stop=stop):
            count += 1
        return count

    assert asyncio.run(attempts()) == 1


def test_status_in_words() -> None:
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(CODE.UNIMPLEMENTED, nothing, nothing, "no such method")
    assert describe(error) == "UNIMPLEMENTED: no such method"
    assert error.code() in FATAL
