"""Every kind of a stream, over every transport: what both of its ends do."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio
import pytest

from seedbed.rpc import channels, stream_factory
from seedbed.rpc.asyncio_server import AsyncioServerStream
from seedbed.rpc.channels import MAX_MESSAGE_BYTES
from seedbed.rpc.credentials import PLAIN
from seedbed.rpc.local.messages import MessageServerStream, message_methods
from seedbed.rpc.local.server import LocalServer
from seedbed.rpc.local.steps import StepServerStream, act_method
from seedbed.rpc.step_codec import Actions, Step, inference_handlers
from seedbed.rpc.stream import StreamEnded, UnreadableMessage
from seedbed.rpc.stream_factory import open_actor_stream, open_message_stream
from seedbed.rpc.streams import OpenStreams, StreamRejected, beside
from seedbed.rpc.versions import ERROR_KEY
from seedbed.v1 import inference_pb2 as wire
from tests.support.streams import serving

# A stream that is not ended waits for ever.
pytestmark = pytest.mark.timeout(120)

CODE = grpc.StatusCode
LONG_S = 60.0
METHOD = "/seedbed.v1.Replay/Insert"
LARGEST = MAX_MESSAGE_BYTES - 64 * 1024
NOTICE = wire.LearnerMessage(notice=wire.Notice(reason="late"))
GOODBYE = wire.ActorMessage(goodbye=wire.Goodbye(reason="enough"))

Serve = Callable[[Any], Awaitable[None]]


class Client(NamedTuple):
    """A client's end as all kinds have it, for a thread, whatever it sends."""

    send: Callable[..., Any]
    receive: Callable[..., Any]
    end: Callable[[], Any]


def a_step(sequence: int, size: int = 8) -> Step:
    return Step(sequence, bytes([sequence % 256]) * size, b"abcd", b"\0")


class ActorKind:
    """Streams of `Act`: steps to the server, actions to the client."""

    def __init__(self, name: str) -> None:
        self.name = name

    @contextlib.asynccontextmanager
    async def serving(self, folder: Path, serve: Serve) -> AsyncIterator[str]:
        if self.name == "memory":
            server = LocalServer(act_method(serve), PLAIN, lambda _: None)
            server.listen(f"{folder}/socket.shm")
            yield f"unix:{folder}/socket"
            await server.stop(5)
            return

        async def status(*_: Any) -> Any:
            raise AssertionError("nobody asks")

        grpc_server = channels.aio_server()
        grpc_server.add_generic_rpc_handlers((inference_handlers(serve, status),))
        address = channels.bind(grpc_server, "127.0.0.1:0")
        await grpc_server.start()
        yield address
        await grpc_server.stop(0)

    @contextlib.contextmanager
    def opened(self, address: str, loop: asyncio.AbstractEventLoop, size: int = 1 << 16) -> Any:
        metadata = (("key", "value"), ("a-bin", b"\0\1"))
        stream = open_actor_stream(address, PLAIN, metadata, size, loop)
        with contextlib.closing(stream):
            yield Client(stream.send, stream.receive, stream.end)

    def request(self, number: int, size: int = 8) -> Any:
        return a_step(number, size)

    def answer(self, _: Any, number: int) -> Any:
        return Actions(number, b"efgh")

    def number_in(self, message: Any) -> int:
        return int(message.sequence)


class MessageKind(ActorKind):
    """Streams of large messages, by coroutines: the thread waits for each of them."""

    @contextlib.asynccontextmanager
    async def serving(self, folder: Path, serve: Serve) -> AsyncIterator[str]:
        if self.name == "messages by memory":
            server = LocalServer(
                message_methods("seedbed.v1.Replay", {"Insert": serve}), PLAIN, lambda _: None
            )
            server.listen(f"{folder}/socket.shm")
            yield f"unix:{folder}/socket"
            await server.stop(5)
            return

        async def handle(context: Any) -> None:
            await serve(AsyncioServerStream(context))

        async with serving(METHOD, handle) as address:
            yield address

    @contextlib.contextmanager
    def opened(self, address: str, loop: asyncio.AbstractEventLoop, size: int = 1 << 16) -> Any:
        def wait(work: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(work, loop).result()

        channel: Any = None

        async def open_() -> Any:
            nonlocal channel
            channel = channels.aio_channel(address)
            metadata = (("key", "value"), ("a-bin", b"\0\1"))
            return open_message_stream(address, channel, METHOD, metadata, size)

        stream = wait(open_())

        async def send(message: bytes, is_last: bool = False) -> None:
            await stream.send([message[:1], message[1:]])
            if is_last:
                await stream.half_close()

        async def receive(timeout_s: float) -> bytes:
            answer = await stream.receive(timeout_s)
            data = bytes(answer.data)
            answer.release()
            return data

        async def close() -> None:
            stream.end()
            await channel.close()

        try:
            yield Client(
                lambda *args, **kwargs: wait(send(*args, **kwargs)),
                lambda timeout_s: wait(receive(timeout_s)),
                lambda: loop.call_soon_threadsafe(stream.end),
            )
        finally:
            wait(close())

    def request(self, number: int, size: int = 8) -> Any:
        return bytes([number]) * size

    def answer(self, stream: Any, number: int) -> Any:
        return stream.pack([bytes([number]), b"efgh"])

    def number_in(self, message: Any) -> int:
        return bytes(message)[0]


ACTORS = [ActorKind(name) for name in ("memory", "thread", "event loop")]
MESSAGES = [MessageKind(name) for name in ("messages by memory", "messages by gRPC")]


@pytest.fixture(params=[*ACTORS, *MESSAGES], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ActorKind:
    found: ActorKind = request.param
    if found.name == "thread":
        assert stream_factory._thread_stream() is not None, f"with gRPC {grpc.__version__}"
    else:
        monkeypatch.setattr(stream_factory, "_thread_stream", lambda: None)
    return found


def play(
    kind: ActorKind,
    folder: Path,
    serve: Serve,
    client: Callable[[Client], Any],
    size: int = 1 << 16,
    closed: Callable[[], None] = lambda: None,
) -> Any:
    """Run one stream between `serve` and `client`, in a thread; return what `client` does.

    `closed` is called once the client has released its end.
    """

    async def both() -> Any:
        streams = OpenStreams("it stops")
        loop = asyncio.get_running_loop()

        async def handle(stream: Any) -> None:
            await streams.serve(stream, lambda: serve(stream))

        def run(address: str) -> Any:
            with kind.opened(address, loop, size) as opened:
                result = client(opened)
            closed()
            return result

        async with kind.serving(folder, handle) as address:
            return await asyncio.to_thread(run, address)

    return asyncio.run(both())


def status_of(receive: Callable[..., Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        receive(LONG_S)
    return error.value.code(), str(error.value.details())


def test_messages_go_both_ways_in_order_until_both_sides_have_ended(
    kind: ActorKind, tmp_path: Path
) -> None:
    received: list[Any] = []

    async def serve(stream: Any) -> None:
        received.append(dict(stream.invocation_metadata()))
        assert stream.crosses_network == ("memory" not in kind.name)
        try:
            while True:
                number = kind.number_in(await stream.receive())
                received.append(number)
                await stream.send(kind.answer(stream, number))
        except StreamEnded:
            received.append("end")
            raise

    def client(stream: Client) -> list[int]:
        answers = []
        for number in range(5):
            stream.send(kind.request(number), is_last=number == 4)
            answers.append(kind.number_in(stream.receive(LONG_S)))
        for _ in range(2):  # the same again
            with pytest.raises(StreamEnded):
                stream.receive(LONG_S)
        return answers

    assert play(kind, tmp_path, serve, client) == [0, 1, 2, 3, 4]
    metadata, *numbers = received
    assert numbers == [0, 1, 2, 3, 4, "end"]
    assert metadata["key"] == "value"
    assert metadata["a-bin"] == b"\0\1"


def test_a_deadline_begins_with_each_receive(kind: ActorKind, tmp_path: Path) -> None:
    """A deadline that has passed ends no later one, and a pause between two is nobody's."""

    async def serve(stream: Any) -> None:
        while True:
            number = kind.number_in(await stream.receive())
            if number == 2:
                await asyncio.Event().wait()
            await asyncio.sleep(0.3)
            await stream.send(kind.answer(stream, number))

    def client(stream: Client) -> None:
        for number, timeout_s in ((0, 0.6), (1, LONG_S)):
            stream.send(kind.request(number))
            assert kind.number_in(stream.receive(timeout_s)) == number
            threading.Event().wait(0.5)
        stream.send(kind.request(2))
        with pytest.raises(TimeoutError):
            stream.receive(0.2)

    play(kind, tmp_path, serve, client)


def test_a_stream_that_is_ended_frees_both_of_its_ends(kind: ActorKind, tmp_path: Path) -> None:
    waits, freed = threading.Event(), threading.Event()

    async def serve(stream: Any) -> None:
        await stream.receive()
        waits.set()
        try:
            await stream.receive()
        except (asyncio.CancelledError, StreamEnded):
            freed.set()
            raise

    def client(stream: Client) -> None:
        stream.send(kind.request(0))

        def end() -> None:
            waits.wait(20)
            stream.end()
            stream.end()  # once more is nothing

        ending = threading.Thread(target=end)
        ending.start()
        assert status_of(stream.receive)[0] is CODE.CANCELLED
        ending.join()

    def closed() -> None:
        assert freed.wait(20)

    play(kind, tmp_path, serve, client, closed=closed)


@pytest.mark.parametrize("received", [0, 1])
def test_a_refusal_has_its_words_and_its_field(
    kind: ActorKind, tmp_path: Path, received: int
) -> None:
    """Before a message is received, and amid the stream; and each time that it is read."""
    field = wire.StreamError(field="reward").SerializeToString()
    rejected = StreamRejected("é: reward")
    rejected.metadata = ((ERROR_KEY, field),)

    async def serve(stream: Any) -> None:
        # `grpc.aio` gives a stream that ends amid a write an error of its own, so that the client
        # sends nothing meanwhile.
        for _ in range(received):
            await stream.send(kind.answer(stream, kind.number_in(await stream.receive())))
            await stream.receive()
        raise rejected

    def client(stream: Client) -> None:
        for number in range(received):
            stream.send(kind.request(number))
            stream.receive(LONG_S)
            stream.send(kind.request(9))
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as error:
                stream.receive(LONG_S)
            assert error.value.code() is CODE.INVALID_ARGUMENT
            assert error.value.details() == "é: reward"
            assert dict(error.value.trailing_metadata())[ERROR_KEY] == field

    play(kind, tmp_path, serve, client)


def test_an_error_beside_a_reader_reaches_a_client_that_waits(
    kind: ActorKind, tmp_path: Path
) -> None:
    """The client sends nothing more before it has an answer."""

    async def store(message: Any) -> None:
        await asyncio.sleep(0.01)
        raise ValueError(f"{kind.number_in(message)} is odd")

    async def serve(stream: Any) -> None:
        storing: Any = None
        while True:
            message = await beside(storing, stream.receive())
            storing = asyncio.create_task(store(message))

    def client(stream: Client) -> None:
        stream.send(kind.request(7))
        assert status_of(stream.receive) == (CODE.INVALID_ARGUMENT, "7 is odd")

    play(kind, tmp_path, serve, client)


def test_what_is_beside_the_last_message_is_done_before_the_end(
    kind: ActorKind, tmp_path: Path
) -> None:
    async def store(stream: Any, message: Any) -> None:
        await asyncio.sleep(0.05)
        await stream.send(kind.answer(stream, kind.number_in(message)))

    async def serve(stream: Any) -> None:
        storing: Any = None
        while True:
            message = await beside(storing, stream.receive())
            storing = asyncio.create_task(store(stream, message))

    def client(stream: Client) -> None:
        stream.send(kind.request(3), is_last=True)
        assert kind.number_in(stream.receive(LONG_S)) == 3
        with pytest.raises(StreamEnded):
            stream.receive(LONG_S)

    play(kind, tmp_path, serve, client)


def test_the_largest_message_arrives(kind: ActorKind, tmp_path: Path) -> None:
    sizes: list[int] = []

    async def serve(stream: Any) -> None:
        message = await stream.receive()
        sizes.append(len(message.observation if isinstance(message, Step) else message))
        await stream.send(kind.answer(stream, 1))

    def client(stream: Client) -> None:
        stream.send(kind.request(1, LARGEST))
        assert kind.number_in(stream.receive(LONG_S)) == 1

    play(kind, tmp_path, serve, client, MAX_MESSAGE_BYTES)
    assert sizes == [LARGEST]


@pytest.mark.parametrize("message_kind", MESSAGES, ids=lambda kind: kind.name)
def test_a_server_that_does_not_receive_holds_its_client_up(
    message_kind: MessageKind, tmp_path: Path
) -> None:
    """What waits for it is bounded by the transport, and goes on with the first `receive`."""
    count, may_receive = 64, threading.Event()
    sent: list[int] = []

    async def serve(stream: Any) -> None:
        await asyncio.to_thread(may_receive.wait, 30)
        for _ in range(count):
            number = message_kind.number_in(await stream.receive())
            await stream.send(message_kind.answer(stream, number))

    def client(stream: Client) -> None:
        def send() -> None:
            for number in range(count):
                stream.send(message_kind.request(number, 1 << 20))
                sent.append(number)

        sending = threading.Thread(target=send)
        sending.start()
        sending.join(1.0)
        assert sending.is_alive(), "it has sent 64 MB to nobody"
        assert len(sent) < count // 4
        may_receive.set()
        for number in range(count):
            assert message_kind.number_in(stream.receive(LONG_S)) == number
        sending.join(30)

    play(message_kind, tmp_path, serve, client, 1 << 20)


@pytest.mark.parametrize("actors", ACTORS, ids=lambda kind: kind.name)
def test_bytes_that_are_no_message(
    actors: ActorKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if actors.name == "event loop":
        monkeypatch.setattr(stream_factory, "_thread_stream", lambda: None)
    monkeypatch.setattr("seedbed.rpc.step_codec.write_learner_message", lambda _: b"\xff\xff")

    async def serve(stream: Any) -> None:
        await stream.receive()
        if isinstance(stream, StepServerStream):
            await stream._send(b"\x01\xff\xff")
        else:
            await stream.send(NOTICE)
        await stream.receive()

    def client(stream: Client) -> None:
        stream.send(actors.request(0))
        with pytest.raises(UnreadableMessage):
            stream.receive(LONG_S)

    play(actors, tmp_path, serve, client)


def test_a_server_that_is_gone_is_unavailable(kind: ActorKind, tmp_path: Path) -> None:
    async def serve(stream: Any) -> None:
        await stream.receive()
        if isinstance(stream, StepServerStream | MessageServerStream):
            stream.close()  # as the kernel does with a process that is killed
        else:
            raise StreamRejected("it stops", CODE.UNAVAILABLE)

    def client(stream: Client) -> None:
        stream.send(kind.request(0))
        assert status_of(stream.receive)[0] is CODE.UNAVAILABLE

    play(kind, tmp_path, serve, client)


@pytest.mark.parametrize("name", ["thread", "event loop"])
def test_no_server_is_unavailable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "event loop":
        monkeypatch.setattr(stream_factory, "_thread_stream", lambda: None)

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def client() -> None:
            with ActorKind(name).opened("127.0.0.1:1", loop) as stream:
                stream.send(a_step(0))
                assert status_of(stream.receive)[0] is CODE.UNAVAILABLE

        await asyncio.to_thread(client)

    asyncio.run(run())


def test_streams_that_end_leave_nothing_open(kind: ActorKind, tmp_path: Path) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    async def run() -> None:
        loop = asyncio.get_running_loop()

        async def serve(stream: Any) -> None:
            with contextlib.suppress(StreamEnded):
                await stream.receive()
                await stream.send(kind.answer(stream, 1))
                await stream.receive()

        def once(address: str) -> None:
            with kind.opened(address, loop) as stream:
                stream.send(kind.request(1))
                stream.receive(LONG_S)

        async with kind.serving(tmp_path, serve) as address:
            before = 0
            for turn in range(30):
                await asyncio.to_thread(once, address)
                if turn == 4:
                    before = descriptors()
            assert descriptors() < before + 10

    asyncio.run(run())
