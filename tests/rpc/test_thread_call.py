"""A stream of `Act` over gRPC that one thread sends and receives on, without the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from seedbed.rpc import thread_call
from seedbed.rpc.credentials import PLAIN
from seedbed.rpc.step_codec import ACT, Actions, Step, read_actor_message
from seedbed.rpc.thread_call import ThreadCall
from seedbed.rpc.versions import ERROR_KEY
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.actor.metrics import ActorMetrics
from seedbed.v1 import inference_pb2 as wire
from tests.support.echo_actor import Actor, EchoVectorEnv
from tests.support.null_model import null_learner
from tests.support.raw_wire import step
from tests.support.streams import note_opened, serving
from tests.support.waiting import wait_for

# A call that is not ended waits for ever.
pytestmark = pytest.mark.timeout(60)

CODE = grpc.StatusCode
UNROLL = wire.ActorMessage(unroll=wire.Unroll(version=3))
WELCOME = wire.LearnerMessage(welcome=wire.Welcome(session=3)).SerializeToString()
STEP: Any = read_actor_message(step(0).SerializeToString())
ANSWER = wire.LearnerMessage(actions=wire.Actions(sequence=0, action=b"abcd")).SerializeToString()
NOTICE = wire.LearnerMessage(notice=wire.Notice(reason="late")).SerializeToString()


def play(
    serve: Callable[[Any], Awaitable[None]], client: Callable[[ThreadCall], Awaitable[Any]]
) -> Any:
    """Run one stream between `serve`, of bytes, and `client`; return what `client` does."""

    async def both() -> Any:
        async with serving(ACT, serve) as address:
            with ThreadPoolExecutor(1) as thread:
                metadata = (("key", "value"), ("a-bin", b"\0\1"))
                call = ThreadCall(address, PLAIN, metadata, thread)
                try:
                    return await client(call)
                finally:
                    call.cancel()

    return asyncio.run(both())


def in_thread(function: Callable[[ThreadCall], Any], timeout_s: float = 20.0) -> Any:
    """A client that does as `function` does in the call's own thread."""

    async def client(call: ThreadCall) -> Any:
        def blocking() -> Any:
            with call.blocking(timeout_s):
                return function(call)

        return await asyncio.get_running_loop().run_in_executor(call._thread, blocking)

    return client


def test_messages_and_metadata_of_a_stream() -> None:
    heard: list[Any] = []

    async def serve(context: Any) -> None:
        heard.append(dict(context.invocation_metadata()))
        heard.append(read_actor_message(await context.read()))
        await context.write(WELCOME)
        for _ in range(3):
            heard.append(read_actor_message(await context.read()))
            await context.write(NOTICE)
            await context.write(ANSWER)
        heard.append(read_actor_message(await context.read()))
        heard.append(await context.read())

    async def client(call: ThreadCall) -> None:
        await call.write(UNROLL)
        assert (await call.read()).welcome.session == 3

        def steps(call: ThreadCall) -> None:
            for _ in range(3):
                call.send(STEP)
                assert call.receive().notice.reason == "late"
                assert call.receive() == Actions(0, b"abcd")

        await in_thread(steps)(call)
        await call.write(wire.ActorMessage(goodbye=wire.Goodbye(reason="enough")))
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.read() is grpc.aio.EOF, "the same again"

    play(serve, client)
    metadata, unroll, *steps, goodbye, end = heard
    assert metadata["key"] == "value"
    assert metadata["a-bin"] == b"\0\1"
    assert unroll == UNROLL
    assert [type(message) for message in steps] == [Step] * 3
    assert bytes(steps[0].observation) == bytes(STEP.observation)
    assert goodbye.goodbye.reason == "enough"
    assert end is grpc.aio.EOF


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_the_status_of_a_learner_that_refuses(reads: int) -> None:
    """Before Hello, after it, and amid a step."""
    error = wire.StreamError(field="reward").SerializeToString()

    async def serve(context: Any) -> None:
        for received in range(reads):
            await context.read()
            if received == 0 and reads == 2:
                await context.write(WELCOME)
        await context.abort(CODE.INVALID_ARGUMENT, "é: reward", ((ERROR_KEY, error),))

    async def client(call: ThreadCall) -> grpc.aio.AioRpcError:
        await call.write(UNROLL)
        if reads == 2:
            await call.read()
            await in_thread(lambda call: call.send(STEP))(call)
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call.read()
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()  # and again
        return refusal.value

    refusal = play(serve, client)
    assert refusal.code() is CODE.INVALID_ARGUMENT
    assert refusal.details() == "é: reward"
    assert dict(refusal.trailing_metadata())[ERROR_KEY] == error


def test_no_learner_is_unavailable() -> None:
    async def client() -> grpc.aio.AioRpcError:
        with ThreadPoolExecutor(1) as thread:
            call = ThreadCall("localhost:1", PLAIN, (), thread)
            await call.write(UNROLL)
            with pytest.raises(grpc.aio.AioRpcError) as gone:
                await call.read()
            call.cancel()
            return gone.value

    assert asyncio.run(client()).code() is CODE.UNAVAILABLE


def test_bytes_that_are_no_message() -> None:
    async def serve(context: Any) -> None:
        await context.read()
        await context.write(b"\xff\xff")
        await context.read()

    def client(call: ThreadCall) -> grpc.aio.AioRpcError:
        call.send(STEP)
        with pytest.raises(grpc.aio.AioRpcError, match="a message that is none") as error:
            call.receive()
        return error.value

    assert play(serve, in_thread(client)).code() is CODE.INTERNAL


@pytest.mark.slow
def test_a_learner_that_says_nothing() -> None:
    """The limit begins with each message, notices too."""
    ends = asyncio.Event()

    async def serve(context: Any) -> None:
        await context.read()
        for _ in range(4):
            await asyncio.sleep(0.5)
            await context.write(NOTICE)
        await ends.wait()

    def client(call: ThreadCall) -> None:
        call.send(STEP)
        for _ in range(4):
            call.receive()
        with pytest.raises(TimeoutError):
            call.receive()

    play(serve, in_thread(client, 1.5))


def test_a_thread_that_waits_goes_on_as_the_stream_is_cancelled() -> None:
    waits = threading.Event()

    async def serve(context: Any) -> None:
        await context.read()
        waits.set()
        await asyncio.Event().wait()

    async def client(call: ThreadCall) -> None:
        def wait(call: ThreadCall) -> None:
            call.send(STEP)
            with pytest.raises(grpc.aio.AioRpcError) as end:
                call.receive()
            assert end.value.code() is CODE.CANCELLED

        task = asyncio.ensure_future(in_thread(wait)(call))
        await asyncio.to_thread(waits.wait, 20)
        call.cancel()
        call.cancel()  # once more is nothing
        await task

    play(serve, client)


def test_an_environment_that_takes_longer_than_a_reply_may() -> None:
    async def serve(context: Any) -> None:
        for _ in range(2):
            await context.read()
            await context.write(ANSWER)

    def client(call: ThreadCall) -> None:
        for pause_s in (1.5, 0.0):
            call.send(STEP)
            assert call.receive() == Actions(0, b"abcd")
            threading.Event().wait(pause_s)

    play(serve, in_thread(client, 1.0))


def test_a_learner_that_is_busy_hears_goodbye() -> None:
    """A stream that is cancelled at once would lose it."""
    heard: list[Any] = []

    async def serve(context: Any) -> None:
        await context.read()
        await asyncio.sleep(0.2)
        heard.append(read_actor_message(await context.read()))

    async def client(call: ThreadCall) -> None:
        loop = ActorLoop(lambda: EchoVectorEnv(), "localhost:1", "test", 9.0, 9.0, ActorMetrics())
        await call.write(UNROLL)
        await loop._leave(call, "enough")

    play(serve, client)
    assert [message.goodbye.reason for message in heard] == ["enough"]


def test_streams_that_end_leave_nothing_open() -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def serve(context: Any) -> None:
        await context.read()
        await context.write(WELCOME)
        await context.read()

    async def client(first: ThreadCall) -> None:
        before = 0
        for turn in range(30):
            with ThreadPoolExecutor(1) as thread:  # whose end waits for the end of the call
                call = ThreadCall(first._channel._channel.target().decode(), PLAIN, (), thread)
                await call.write(UNROLL)
                await call.read()
                call.cancel()
            if turn == 4:
                before = descriptors()
        assert descriptors() < before + 10

    play(serve, client)


# --- which way an actor takes ------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses to which actors have opened streams of this kind."""
    return note_opened(monkeypatch, ThreadCall)


@contextmanager
def actor_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str
) -> Iterator[tuple[Any, Actor]]:
    with null_learner(tmp_path, monkeypatch, listen=listen) as learner:
        actor = Actor(learner.address)
        actor.goes_on()
        yield learner, actor
        actor.stop()
        assert actor.failure is None
        wait_for(lambda: learner.telemetry.sessions.connected == 0, "its stream ends")
        assert learner.telemetry.sessions.stream_errors == {}, "it said goodbye"


def test_an_actor_over_a_network_steps_in_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    with actor_of(tmp_path, monkeypatch, "127.0.0.1:0") as (learner, _):
        assert opened == [learner.address]


def raises(*_: Any) -> None:
    raise TypeError("other arguments")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("ReceiveStatusOnClientOperation", None),
        ("SendMessageOperation", raises),
        ("ReceiveMessageOperation", None),
        ("SendInitialMetadataOperation", raises),
    ],
)
def test_calls_that_changed_are_not_available(
    name: str, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread_call.is_available.cache_clear()
    assert thread_call.is_available(), f"with gRPC {grpc.__version__}"
    thread_call.is_available.cache_clear()
    monkeypatch.setattr(thread_call.cygrpc, name, other)
    assert not thread_call.is_available()
    thread_call.is_available.cache_clear()


def test_without_such_calls_it_steps_by_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    monkeypatch.setattr(thread_call, "is_available", lambda: False)
    with actor_of(tmp_path, monkeypatch, "127.0.0.1:0"):
        assert opened == []
