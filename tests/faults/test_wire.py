"""Bad days on the wire: strangers, silence, peers that do not listen. Others go on meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.actor.actor import Actor as ActorProcess
from tests.support.echo_actor import Actor, EchoVectorEnv
from tests.support.null_model import NullLearner, experiment, null_learner
from tests.support.raw_wire import Proxy, Refused, Stream, step, stream
from tests.support.waiting import wait_for


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A learner with overrides."""

    def make(*overrides: str, **options: Any) -> Any:
        return null_learner(tmp_path, monkeypatch, *overrides, **options)

    return make


@contextmanager
def playing(address: str) -> Iterator[Stream]:
    """An actor that plays and checks its answers until the end of the block."""
    stop, failures = threading.Event(), []

    def play(actor: Stream) -> None:
        try:
            while not stop.is_set():
                actor.play()
        except BaseException as error:
            failures.append(error)

    with stream(address) as actor:
        thread = threading.Thread(target=play, args=(actor,), daemon=True)
        thread.start()
        try:
            yield actor
            before = actor.sequence
            wait_for(lambda: failures or actor.sequence > before + 10, "the good actor goes on")
        finally:
            stop.set()
            thread.join(30)
        assert not thread.is_alive()
        assert not failures, failures


def all_slots_free(learner: NullLearner) -> bool:
    return learner.servicer._slots.available == learner.servicer._slots.slots


# --- nonsense ------------------------------------------------------------------------------------


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", PREFACE, b"\0" * 999])
def test_a_socket_that_is_no_client(bare: Any, words: bytes) -> None:
    with bare(listen="127.0.0.1:0") as learner:
        host, port = learner.address.split(":")
        with (
            socket.create_connection((host, int(port))) as strange,
            playing(learner.address),
        ):
            strange.sendall(words)
            with stream(learner.address) as late:  # a later stream is served as well
                late.play(5)


# --- silence -------------------------------------------------------------------------------------


def test_a_silent_stream_is_ended_and_its_slots_are_free(bare: Any) -> None:
    overrides = ("learner.idle_timeout_s=0.3", "learner.inference.slots=34")
    with bare(*overrides) as learner, playing(learner.address):
        with stream(learner.address, 32) as silent:
            silent.play(3)
            with pytest.raises(Refused, match="idle_timeout_s is 0") as refusal:
                silent.read()
            assert refusal.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
        with stream(learner.address, 32) as later:
            later.play(3)
        assert learner.telemetry.sessions.stream_errors["deadline_exceeded"] == 1


def test_silence_after_hello(bare: Any) -> None:
    with (
        bare("learner.idle_timeout_s=0.3") as learner,
        playing(learner.address),
        stream(learner.address, 8) as silent,
        pytest.raises(Refused, match="nothing from the actor"),
    ):
        silent.read()


def test_a_late_answer_is_not_the_actors_silence(bare: Any) -> None:
    with (
        bare("learner.idle_timeout_s=0.2", may_build=False) as learner,
        stream(learner.address) as waits,
    ):
        waits.send(step(0))
        threading.Event().wait(0.6)  # three times the limit
        learner.may_build.set()
        message = waits.read()
        assert message is not None
        assert message.actions.sequence == 0


def test_a_connection_that_loses_everything(bare: Any) -> None:
    """Half open: no end of the connection is ever seen, as when a node is gone."""
    with bare("learner.idle_timeout_s=0.3", listen="127.0.0.1:0") as learner:
        proxy = Proxy("127.0.0.1", int(learner.address.rsplit(":", 1)[1]))
        with playing(learner.address), stream(proxy.address, 30) as lost:
            lost.play(3)
            proxy.freeze()
            lost.send(step(3, 30))
            wait_for(lambda: learner.telemetry.sessions.connected == 1, "it is given up")
            wait_for(lambda: learner.servicer._slots.available == 62, "slots given back")
        proxy.close()


def test_a_client_that_does_not_read(bare: Any) -> None:
    """It sends and sends; the answers fill its window, and the learner cannot write any more."""
    small_window = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
    with (
        bare("learner.idle_timeout_s=0.5") as learner,
        playing(learner.address),
        Stream(learner.address, small_window) as deaf,
    ):
        deaf.handshake(32)
        for sequence in range(1000):  # 140 KB of answers
            deaf.send(step(sequence, 32))
        wait_for(lambda: learner.servicer._slots.available == 62, "slots given back")
        assert learner.telemetry.sessions.connected == 1
        # The learner could not continue; the actor was not silent.
        assert learner.counters.env_frames > 32
        assert learner.telemetry.sessions.stream_errors == {"deadline_exceeded": 1}
        with stream(learner.address, 32) as later:
            later.play(3)


# --- the actor's side ----------------------------------------------------------------------------


def test_an_actor_leaves_a_connection_that_loses_everything(bare: Any) -> None:
    with bare("learner.idle_timeout_s=0.5", listen="127.0.0.1:0") as learner:
        proxy = Proxy("127.0.0.1", int(learner.address.rsplit(":", 1)[1]))
        # The deadline is at least two intervals of notices, as in Welcome.
        learner.servicer._settings = learner.servicer._settings.model_copy(
            update={"notice_interval_s": 0.1}
        )
        actor = Actor(proxy.address, reply_timeout_s=0.5)
        actor.goes_on()
        proxy.freeze()
        wait_for(lambda: actor.group.resets == 2, "it connects again")
        actor.goes_on()
        wait_for(lambda: learner.telemetry.sessions.connected == 1, "the old session is given up")
        actor.stop()
        proxy.close()
        assert actor.failure is None


def test_an_actor_that_stops_before_its_welcome_leaves_at_once() -> None:
    """A port that takes connections and says nothing, as that of a learner that is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        actor = Actor(f"127.0.0.1:{mute.getsockname()[1]}")
        mute.settimeout(30)
        connection, _ = mute.accept()
        with connection:
            assert actor._loop is not None
            assert actor._runner is not None
            actor._loop.call_soon_threadsafe(actor._runner.stop)
            actor.thread.join(10)  # half of the time in which gRPC gives up
            assert not actor.thread.is_alive()
        assert actor.failure is None
        assert actor.group.resets == 0


def test_an_actor_whose_stream_ends_while_it_steps(bare: Any) -> None:
    """A level that loads for longer than the learner waits; the same when the learner dies."""
    with bare("learner.idle_timeout_s=0.2") as learner:
        actor = Actor(learner.address)
        actor.goes_on()
        actor.group.may_step.clear()
        wait_for(lambda: learner.telemetry.sessions.connected == 0, "the learner gives it up")
        actor.group.may_step.set()
        wait_for(lambda: actor.group.resets == 2, "it connects again")
        actor.goes_on()
        actor.stop()
        assert actor.failure is None


@pytest.mark.slow
def test_a_learner_that_comes_back_finds_its_actors(bare: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    actor = Actor(address)
    for number in range(3):
        with bare(listen=address):
            wait_for(lambda number=number: actor.group.resets > number, "it connects")
            actor.goes_on()
    actor.stop()
    assert actor.failure is None


def test_an_actor_without_a_learner_gives_up_and_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    actor = Actor(address, connect_s=0.3)
    actor.thread.join(30)
    assert isinstance(actor.failure, SeedbedError)
    assert actor.failure.code == ExitCode.LEARNER_UNREACHABLE
    assert address in str(actor.failure)
    assert "actor.connect_timeout_s is 0.3" in str(actor.failure)


def test_environments_begin_once_and_before_the_learner_listens(bare: Any, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/learner.sock"
    actor = Actor(address, env_frames=5)
    wait_for(lambda: actor.group.incarnations == [5], "the episodes begin")
    with bare(listen=address) as learner:
        actor.goes_on()
        assert actor.group.incarnations == [5], "the first stream goes on with them"
        assert len(learner.server.local[0]._tasks) == 1, "it shares memory"
    with bare(listen=address):
        actor.goes_on()
        frames = learner.counters.env_frames
        assert frames > 0
        assert actor.group.incarnations == [5, frames], "another stream follows the learner's"
    actor.stop()
    assert actor.failure is None


def test_environments_whose_frames_are_not_known_begin_with_the_learner(
    bare: Any, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/learner.sock"
    actor = Actor(address)
    with bare(listen=address):
        actor.goes_on()
        assert actor.group.incarnations == [0]
    actor.stop()
    assert actor.failure is None


def test_groups_open_one_after_the_other_beside_their_learner(bare: Any, tmp_path: Path) -> None:
    """Each one opens once the one before has sent an unroll, and not at all after a stop."""
    groups = [EchoVectorEnv() for _ in range(3)]
    made: list[EchoVectorEnv] = []

    async def run(address: str) -> None:
        loops = ActorProcess(experiment("actor.groups=3"), address, 0, env_frames=0).loops()
        for loop, group in zip(loops, groups, strict=True):
            loop._environments._make = partial(make, group)
        tasks = [asyncio.create_task(loop.run()) for loop in loops]
        for number in range(2):
            await asyncio.to_thread(groups[number].stepping.wait, 30)
            assert made == groups[: number + 1], "the next one waits for an unroll of this one"
            if number == 0:
                groups[number].may_step.set()
        for loop in loops:
            loop.stop()
        groups[1].may_step.set()
        await asyncio.gather(*tasks)
        assert made == groups[:2]

    def make(group: EchoVectorEnv) -> Any:
        group.may_step.clear()
        made.append(group)
        return group

    with bare(listen=f"unix:{tmp_path}/learner.sock") as learner:
        asyncio.run(run(learner.address))
