"""Local streams: what a process of the same machine may send, and what its end costs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from seedbed.rpc.local import server, server_stream, steps
from seedbed.rpc.local.addresses import socket_of
from seedbed.rpc.local.blocks import StepReader, StepWriter
from seedbed.rpc.local.packets import ACTIONS, STEP, InvalidBlock, open_packet
from seedbed.rpc.step_codec import ACT, Actions, Step
from seedbed.services.learner.sessions.batcher import Request
from seedbed.spec import FIRST, StepInputs
from tests.support.null_model import NullLearner, null_learner
from tests.support.pattern_env import PatternVectorEnv
from tests.support.raw_wire import (
    LocalTransport,
    Refused,
    Stream,
    hello,
    metadata_of,
    step,
    stream,
)
from tests.support.waiting import wait_for

ENV = PatternVectorEnv(2, 0, shape=(1,), dtype="float32")


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NullLearner]:
    monkeypatch.setattr(Stream, "transport", LocalTransport)
    with null_learner(tmp_path, monkeypatch) as made:
        yield made


def path_of(learner: NullLearner) -> str:
    path = socket_of(learner.address)
    assert path is not None
    return path


def raw(learner: NullLearner) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(30)
    made.connect(path_of(learner))
    return made


def memory(size: int, seals: bool = True) -> int:
    if seals:
        with StepWriter(size) as writer:
            return os.dup(writer.descriptor)
    descriptor = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    return descriptor


def inputs() -> StepInputs:
    return StepInputs(*(np.zeros(1, np.int32) for _ in range(5)))


def no_outputs(*_: Any) -> None:
    raise AssertionError("no batch is computed here")


def descriptors_here() -> int:
    """Sockets and blocks of memory: the learner opens its event file meanwhile."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            found += str(path.readlink()).startswith(("socket:", "/memfd:"))
    return found


# --- the block ---------------------------------------------------------------------------------


def test_a_step_comes_back_as_it_was_and_what_is_judged_is_a_copy() -> None:
    with StepWriter(11) as writer:
        reader = StepReader(os.dup(writer.descriptor), 11)
        sizes = writer.write(Step(3, b"abcdef", b"gh", b"ijk"))
        assert sizes == (6, 2, 3)
        arrays = reader.read(sizes)
        writer.write(Step(4, b"------", b"--", b"---"))
        assert arrays[1:] == (b"gh", b"ijk"), "what was judged is what is kept"
        assert arrays[0] == b"------", "the session copies an observation that it judges"
        with pytest.raises(InvalidBlock, match="a step of 12 bytes in a block of 11"):
            reader.read((6, 3, 3))
        reader.close()
        with pytest.raises(ValueError, match="released"):
            bytes(arrays[0])


@pytest.mark.parametrize(
    ("size", "seals", "words"),
    [(100, True, "expected 1 to 99 bytes"), (50, False, "the seal against shrinking")],
)
def test_a_block_that_cannot_be_trusted_is_refused(size: int, seals: bool, words: str) -> None:
    """A file that its writer shortens would end the learner by SIGBUS."""
    with pytest.raises(InvalidBlock, match=words):
        StepReader(memory(size, seals), 99)


def test_no_file_of_a_disk_is_a_block(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        file.truncate(10)
        with pytest.raises(InvalidBlock, match="no block of shared memory"):
            StepReader(os.dup(file.fileno()), 99)


# --- the stream --------------------------------------------------------------------------------


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("packet", "descriptors"),
    [
        (open_packet(ACT, ()), 0),
        (open_packet(ACT, ()), 2),
        (b"\x00", 1),
        (open_packet("/seedbed.v1.Inference/Other", ()), 1),
        (b"\x02", 1),
        (b"\x00\xff\xff", 1),
        (b"\x00\xff\xff\x01\x00\x01abc", 1),
        (b"\x00\x01\x00\x01\x00\x01\xffa", 1),
    ],
)
def test_a_stream_that_cannot_be_opened_ends_alone(
    learner: NullLearner, packet: bytes, descriptors: int
) -> None:
    with stream(learner.address) as good, raw(learner) as wrong:
        before = descriptors_here()
        blocks = [memory(64) for _ in range(descriptors)]
        socket.send_fds(wrong, [packet], blocks)
        for block in blocks:
            os.close(block)
        assert wrong.recv(100) == b""
        good.play(5)
        wait_for(lambda: descriptors_here() <= before, "its descriptors are closed")


def test_nothing_is_waited_for_without_end(
    learner: NullLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "OPEN_TIMEOUT_S", 0.1)
    with raw(learner) as mute:
        assert mute.recv(100) == b""


@pytest.mark.parametrize(
    "packet",
    [
        b"\x01\xff\xff",
        b"\x02abc",
        b"\x07",
        steps._STEP_HEAD.pack(2, 0, 0, 0, 1 << 20, 9, 9),
    ],
)
def test_packets_that_are_no_message_are_refused(learner: NullLearner, packet: bytes) -> None:
    with Stream(learner.address) as wrong, stream(learner.address) as good:
        wrong.handshake(2)
        of: Any = wrong._of
        of.send_packet(packet)
        with pytest.raises(Refused) as refusal:
            wrong.read()
        assert refusal.value.code is grpc.StatusCode.INVALID_ARGUMENT
        assert refusal.value.error is not None
        assert refusal.value.error.field == "message"
        good.play(5)


def test_a_client_that_does_not_wait_is_held_up(learner: NullLearner) -> None:
    """Its packets stay in the socket, whose buffer is bounded."""
    with raw(learner) as flood, stream(learner.address) as good:
        block = memory(64)
        os.pwrite(block, bytes([FIRST, FIRST]), 24)  # after observations and rewards
        socket.send_fds(flood, [open_packet(ACT, metadata_of(hello(2)))], [block])
        os.close(block)
        learner.policy.gate.clear()
        learner.policy.entered.clear()
        flood.send(struct.pack("<BQffIII", STEP, 0, 0.0, 0.0, 16, 8, 2))
        assert learner.policy.entered.wait(30), "its step waits for actions"
        flood.setblocking(False)
        # Until it is full, and again after each turn of the event loop, which reads one packet.
        for _ in range(server_stream._PACKETS + 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    flood.send(b"\x03" * 100)  # what no client sends
            with stream(learner.address):
                pass
        with pytest.raises(BlockingIOError):
            flood.send(b"\x03" * 100)
        learner.policy.gate.set()
        good.play(5)
    wait_for(lambda: learner.telemetry.sessions.connected == 0, "both are gone")


def test_the_event_loop_learns_of_a_batch_with_the_message_that_follows(
    learner: NullLearner,
) -> None:
    """An actor may answer the first actions of a batch before the others are sent."""
    servicer: Any = learner.servicer
    noted: list[str] = []
    first, second = (
        Request(inputs(), 1, False, no_outputs, partial(noted.append, name), action=name.encode())
        for name in ("first", "second")
    )
    sent: list[bytes] = []

    def post(action: bytes) -> None:
        sent.append(action)
        if action == b"first":
            servicer.answers.note()  # as the event loop does before it reads what comes next
            assert noted == ["first", "second"]

    first.post = second.post = post
    servicer.answers.send([first, second])
    assert sent == [b"first", b"second"]
    assert noted == ["first", "second"]


def full() -> tuple[steps.StepServerStream, socket.socket, int]:
    """A stream whose client has not read so many packets that no further one fits."""
    ours, actors = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    actors.setblocking(False)
    stream = steps.StepServerStream(ours, StepReader(memory(1), 1), (), "path")
    before = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            ours.send(b"another packet")
            before += 1
    return stream, actors, before


def test_actions_to_an_actor_that_does_not_read_are_sent_by_the_event_loop() -> None:
    async def run() -> None:
        stream, actors, before = full()
        await asyncio.to_thread(stream.post, Actions(7, b"abcd"))
        await asyncio.to_thread(stream.post, Actions(8, b"abcd"))
        loop = asyncio.get_running_loop()
        packets = [await loop.sock_recv(actors, 100) for _ in range(before + 2)]
        assert packets[-2:] == [struct.pack("<BQ", ACTIONS, n) + b"abcd" for n in (7, 8)]
        stream.close()
        await asyncio.to_thread(stream.post, Actions(9, b"abcd"))  # to nobody
        assert await loop.sock_recv(actors, 100) == b""
        actors.close()

    asyncio.run(run())


def test_an_actor_that_never_reads_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Answers that wait for it would take memory, or a task and a line of the log each."""

    async def serve() -> int:
        stream, actors, _ = full()
        served.append(stream)
        for number in range(1000):
            stream.post(Actions(number, b"abcd"))
        assert len(asyncio.all_tasks()) == 1
        try:
            await stream.receive()
        finally:
            stream.close()
            actors.close()
        raise AssertionError("its stream goes on")

    served: list[steps.StepServerStream] = []
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(serve())
    assert not served[0]._unsent
    # gRPC's poller logs as "asyncio" where an earlier test's loop is closed.
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("seedbed")]
    assert lines == ["ended a local stream that left 5 messages unread"]


def test_a_killed_actor_gives_its_slots_back_while_the_learner_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No write is due that would fail: the end of the process itself is seen."""
    monkeypatch.setattr(Stream, "transport", LocalTransport)
    program = (
        "import sys, time\n"
        "from tests.support.raw_wire import LocalTransport, Stream, step\n"
        "Stream.transport = LocalTransport\n"
        "actor = Stream(sys.argv[1])\n"
        "actor.handshake(4)\n"
        "actor.play(8)\n"
        "actor.send(step(8, 4))\n"
        "print('held up', flush=True)\n"
        "time.sleep(1000)\n"
    )
    with null_learner(tmp_path, monkeypatch, train=False) as learner:
        command = [sys.executable, "-c", program, learner.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as actor:
            assert actor.stdout is not None
            assert actor.stdout.readline() == b"held up\n"
            wait_for(lambda: learner.telemetry.sessions.connected == 1, "it is there")
            actor.send_signal(signal.SIGKILL)
            wait_for(lambda: learner.telemetry.sessions.connected == 0, "it is gone")
        slots = learner.servicer._slots
        wait_for(lambda: slots.available == slots.slots, "its slots are free")
        learner.stop("enough")
        assert learner.ended.wait(30)
        counters = learner.counters
        assert counters.env_frames == counters.trained_frames + counters.discarded_frames


@pytest.mark.slow
def test_the_end_of_the_learner_is_seen_at_once(learner: NullLearner) -> None:
    with stream(learner.address) as actor:
        actor.play(2)
        learner.stop("enough")
        assert learner.ended.wait(30)
        actor.send(step(2))
        with pytest.raises(Refused) as refusal:
            actor.read()
        assert refusal.value.code is grpc.StatusCode.UNAVAILABLE
    assert not Path(path_of(learner)).exists()


def test_the_path_of_a_killed_learner_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stream, "transport", LocalTransport)
    with null_learner(tmp_path, monkeypatch) as learner:
        path = path_of(learner)
        learner.stop("enough")
        assert learner.ended.wait(30)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(path)
    with null_learner(tmp_path, monkeypatch) as learner, stream(learner.address) as actor:
        assert path_of(learner) == path
        actor.play(3)
