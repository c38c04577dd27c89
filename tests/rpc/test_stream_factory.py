"""Which way an actor's stream takes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from seedbed.rpc import stream_factory, thread_client
from seedbed.rpc.awaiting_client import AwaitingStream
from seedbed.rpc.credentials import PLAIN
from seedbed.rpc.local import blocks
from seedbed.rpc.local.steps import StepStream
from seedbed.rpc.stream_factory import open_actor_stream
from seedbed.rpc.thread_client import ThreadStream
from tests.support.echo_actor import Actor
from tests.support.null_model import NullLearner, null_learner
from tests.support.streams import note_opened
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def tried_anew() -> Iterator[None]:
    """What an earlier trial has found is forgotten."""
    for cached in (stream_factory._thread_stream, thread_client.is_available):
        cached.cache_clear()
    yield
    for cached in (stream_factory._thread_stream, thread_client.is_available):
        cached.cache_clear()


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NullLearner]:
    with null_learner(tmp_path, monkeypatch) as made:
        yield made


def kind_of(address: str, step_bytes: int = 100) -> type[Any]:
    """The class of the stream that is opened."""

    async def tried() -> type[Any]:
        loop = asyncio.get_running_loop()

        def open_() -> type[Any]:
            stream = open_actor_stream(address, PLAIN, (), step_bytes, loop)
            stream.close()
            return type(stream)

        return await asyncio.to_thread(open_)

    return asyncio.run(tried())


def test_which_learners_an_actor_shares_memory_with(learner: NullLearner) -> None:
    assert kind_of(learner.address) is StepStream
    assert kind_of("127.0.0.1:1") is ThreadStream
    assert kind_of(f"{learner.address}-other") is ThreadStream, "nothing listens there"
    assert kind_of(learner.address, 0) is ThreadStream, "unrolls are too large for a packet"


def test_without_such_memory_it_speaks_grpc(
    learner: NullLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(blocks.os, "memfd_create", none)
    assert kind_of(learner.address) is ThreadStream


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
def test_a_library_with_other_calls_is_used_by_its_public_ones(
    name: str, other: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_client.cygrpc, name, other)
    for _ in range(2):
        assert kind_of("127.0.0.1:1") is AwaitingStream
    # gRPC's poller logs as "asyncio" where an earlier test's loop is closed.
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("seedbed")]
    assert lines == [f"actors step through grpc.aio: gRPC {grpc.__version__} has other calls"]


def test_the_file_with_private_classes_may_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seedbed.rpc.thread_client", None)  # as if it were not there
    assert kind_of("127.0.0.1:1") is AwaitingStream


@contextmanager
def actor_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str) -> Iterator[None]:
    with null_learner(tmp_path, monkeypatch, listen=listen) as learner:
        actor = Actor(learner.address)
        actor.goes_on()
        yield
        actor.stop()
        assert actor.failure is None
        wait_for(lambda: learner.telemetry.sessions.connected == 0, "its stream ends")
        assert learner.telemetry.sessions.stream_errors == {}


@pytest.mark.parametrize("kind", [StepStream, ThreadStream, AwaitingStream])
def test_an_actor_steps_and_says_goodbye_on_each(
    kind: type[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    if kind is AwaitingStream:
        monkeypatch.setattr(stream_factory, "_thread_stream", lambda: None)
    opened = note_opened(monkeypatch, kind)
    listen = f"unix:{tmp_path}/learner.sock" if kind is StepStream else "127.0.0.1:0"
    with actor_of(tmp_path, monkeypatch, listen):
        assert len(opened) == 1
    assert any("leaves: the actor stops" in record.getMessage() for record in caplog.records)
