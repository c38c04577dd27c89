"""Local streams of large messages: what is lent, what comes back, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from seedbed.rpc.credentials import PLAIN
from seedbed.rpc.local import messages
from seedbed.rpc.local.blocks import MessageBlock
from seedbed.rpc.local.messages import SLOTS, MessageServerStream, MessageStream, message_methods
from seedbed.rpc.local.packets import InvalidBlock
from seedbed.rpc.local.server import LocalServer
from seedbed.rpc.stream import StreamEnded
from seedbed.rpc.streams import OpenStreams

SERVICE, METHOD = "seedbed.v1.Replay", "/seedbed.v1.Replay/Insert"
PAYLOAD = 1000


async def echo(stream: MessageServerStream) -> None:
    """Answer each request with itself, twice over."""
    while True:
        data = bytes(await stream.receive())
        await stream.send(stream.pack([data, data]))


def run(
    folder: Path,
    client: Callable[[MessageStream], Awaitable[Any]],
    serve: Callable[[Any], Awaitable[None]] = echo,
) -> Any:
    """Return what a client makes of a server's streams."""

    async def both() -> Any:
        streams = OpenStreams("stopping")
        server = LocalServer(
            message_methods(
                SERVICE, {"Insert": lambda one: streams.serve(one, lambda: serve(one), "Insert")}
            ),
            PLAIN,
            lambda _: None,
        )
        path = f"{folder}/socket"
        server.listen(path)
        call = MessageStream(path, METHOD, (), PAYLOAD)
        try:
            async with asyncio.timeout(30):
                return await client(call)
        finally:
            call.end()
            await server.stop(5)

    return asyncio.run(both())


def test_answers_come_in_the_order_of_the_requests(tmp_path: Path) -> None:
    """More of them than there are slots, and an array beside bytes."""

    async def client(call: MessageStream) -> list[bytes]:
        async def ask() -> None:
            for number in range(3 * SLOTS):
                array = np.full((3, 2), number, np.int16)
                await call.send([b"number", array])
            await call.half_close()

        asking = asyncio.create_task(ask())
        found = []
        with contextlib.suppress(StreamEnded):
            while True:
                answer = await call.receive()
                found.append(bytes(answer.data))
                answer.release()
        await asking
        return found

    wanted = [b"number" + np.full(6, number, np.int16).tobytes() for number in range(3 * SLOTS)]
    assert run(tmp_path, client) == [2 * one for one in wanted]


def test_an_answer_stays_as_it_is_until_it_is_released(tmp_path: Path) -> None:
    async def client(call: MessageStream) -> None:
        for number in range(SLOTS):
            await call.send([bytes([number]) * 10])
        held = [await call.receive() for _ in range(SLOTS)]
        waiting = asyncio.create_task(call.send([b"more"]))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done(), "no slot is free"
        assert [bytes(one.data) for one in held] == [bytes([n]) * 20 for n in range(SLOTS)]
        held[2].release()
        await waiting
        assert bytes((await call.receive()).data) == b"moremore"
        kept = [n for n in range(SLOTS) if n != 2]
        assert [bytes(held[n].data) for n in kept] == [bytes([n]) * 20 for n in kept]

    run(tmp_path, client)


def test_a_request_that_does_not_fit_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async def client(call: MessageStream) -> None:
        with pytest.raises(InvalidBlock, match="a message above 2097152 bytes"):
            await call.send([bytes(1 << 21)])

    run(tmp_path, client)


@pytest.mark.parametrize(
    ("offset", "size", "room"),
    [(1 << 40, 5, 5), (0, 1 << 40, 5), (0, 5, 1 << 40), (2**64 - 1, 2, 2)],
)
def test_a_place_outside_of_the_memory_is_refused(
    tmp_path: Path, offset: int, size: int, room: int
) -> None:
    async def client(call: MessageStream) -> None:
        await call._send(messages._LENT.pack(messages.LENT, offset, size, room))
        with pytest.raises(grpc.aio.AioRpcError, match="bytes at") as refusal:
            await call.receive()
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.aio.AioRpcError):
            await call.raise_if_refused()

    run(tmp_path, client)


@pytest.mark.parametrize("answers", [[bytes(1 << 21)], [b"one", b"two"]])
def test_no_answer_takes_more_than_was_lent(tmp_path: Path, answers: list[bytes]) -> None:
    async def serve(stream: MessageServerStream) -> None:
        await stream.receive()
        packets = [stream.pack([one]) for one in answers]
        await stream.send(packets[0])

    async def client(call: MessageStream) -> None:
        await call.send([b"?"])
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call.receive()
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(tmp_path, client, serve)


@pytest.mark.slow
def test_the_memory_is_given_back_with_the_last_array(tmp_path: Path) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:seedbed")

    async def client(call: MessageStream) -> Any:
        await call.send([b"kept"])
        return await call.receive()

    gc.collect()  # of other tests' failures
    before = mapped()
    answer = run(tmp_path, client)
    assert bytes(answer.data) == b"keptkept", "a batch is joined after its connection has ended"
    del answer
    gc.collect()
    assert mapped() == before


def test_memory_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that finds none would end the process by SIGBUS."""

    def none(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("seedbed.rpc.local.blocks.os.posix_fallocate", none)
    with pytest.raises(OSError, match="No space"):
        MessageBlock(2, 100)


def test_why_a_stream_is_refused_is_said_though_its_requests_were_not_read(
    tmp_path: Path,
) -> None:
    """The kernel says first that the server has left something unread."""

    async def serve(_: MessageServerStream) -> None:
        await asyncio.sleep(0.05)
        raise ValueError("no more of these")

    async def client(call: MessageStream) -> None:
        for _ in range(SLOTS):
            await call.send([b"?"])
        with pytest.raises(grpc.aio.AioRpcError, match="no more of these"):
            await call.receive()

    run(tmp_path, client, serve)
