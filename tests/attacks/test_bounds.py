"""Strangers before their credential or Hello: what they hold is bounded, and decides nothing."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from seedbed.rpc import channels
from seedbed.rpc.hello import HELLO_KEY
from seedbed.v1 import inference_pb2 as wire
from tests.support.processes import Cluster, Process, cluster
from tests.support.raw_http2 import RawHttp2
from tests.support.raw_wire import ACT
from tests.support.waiting import wait_for

STRANGE = wire.Hello(
    protocol_version=1,
    oldest_protocol_version=1,
    actor="stranger",
    environment="CartPole-v1",
    environments=1,
    actions=32768,
    action_repeat=1,
    observation=wire.ArraySpec(shape=[1_000_000], dtype="uint8"),
)
DESCRIPTORS = 128
MIB = 2**20


def memory(pid: int, key: str) -> int:
    """A size of /proc/PID/status in bytes."""
    found = re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) * 1024


def address_of(process: Process) -> str:
    def said() -> str:
        process.runs()
        found = re.search(r"listening on (\S+)", process.said)
        return found[1] if found else ""

    return wait_for(said, "it listens", 120)


def refusal_of(address: str, hello: wire.Hello) -> grpc.RpcError:
    """The status with which a Hello is refused."""
    with channels.channel(address) as channel:
        act: Any = channel.stream_stream(ACT, lambda message: message.SerializeToString(), bytes)
        metadata = [(HELLO_KEY, hello.SerializeToString())]
        with pytest.raises(grpc.RpcError) as refused:
            next(act(iter(()), metadata=metadata, timeout=60))
        return refused.value


class Learner:
    """A learner process with few descriptors, and a stranger before its first actor."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.process = cluster.start(
            "learner", "--run-dir", str(cluster.run), "--listen", "127.0.0.1:0"
        )
        limits = (DESCRIPTORS, DESCRIPTORS)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, limits)
        self.address = address_of(self.process)
        self.refused = refusal_of(self.address, STRANGE)
        self.actor = cluster.start("actor", "--learner", self.address)
        self.port = int(self.address.rsplit(":", 1)[1])

    def goes_on(self) -> None:
        """Wait for a new checkpoint, after more frames."""
        frames, newest = self.frames(), self.cluster.checkpoints()[-1:]

        def more() -> bool:
            self.process.runs()
            self.actor.runs()
            return self.frames() > frames and self.cluster.checkpoints()[-1:] > newest

        wait_for(more, "a new checkpoint with more frames", 120)

    def frames(self) -> int:
        return int(self.cluster.counters().get("env_frames", 0))


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learner]:
    with cluster(tmp_path_factory.mktemp("bounds")) as made:
        yield Learner(made)


@pytest.mark.slow
def test_the_first_hello_does_not_fix_the_spec(learner: Learner) -> None:
    assert learner.refused.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "uint8[1000000]" in str(learner.refused.details())
    learner.goes_on()


@pytest.mark.slow
def test_half_sent_messages_before_hello_are_bounded(learner: Learner) -> None:
    learner.goes_on()
    pid = learner.process.pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # VmHWM begins anew
    before = memory(pid, "VmRSS")
    for path in (ACT, "/grpc.health.v1.Health/Check"):
        stranger = RawHttp2("127.0.0.1", learner.port)
        senders = [
            threading.Thread(
                target=stranger.half_message, args=(stranger.open(path), 32 * MIB, 2.0)
            )
            for _ in range(40)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        stranger.close()
    assert memory(pid, "VmHWM") - before < 100 * MIB
    learner.goes_on()


@pytest.mark.slow
def test_idle_connections_leave_descriptors_for_checkpoints(learner: Learner) -> None:
    learner.goes_on()
    with contextlib.ExitStack() as stack:
        for _ in range(500):
            stack.enter_context(socket.create_connection(("127.0.0.1", learner.port)))
        learner.goes_on()
        assert len(list(Path(f"/proc/{learner.process.pid}/fd").iterdir())) < DESCRIPTORS - 8
