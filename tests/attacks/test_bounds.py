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
from seedbed.rpc.local.addresses import SUFFIX
from seedbed.v1 import inference_pb2 as wire
from tests.support.processes import Cluster, Process, cluster, guarded
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

    def __init__(self, cluster: Cluster, http_port: int) -> None:
        self.cluster, self.http_port = cluster, http_port
        self.process = cluster.start(
            *("learner", "--run-dir", str(cluster.run), "--listen", "127.0.0.1:0"),
            *("--listen", f"unix:{cluster.run}/learner.sock"),
        )
        limits = (DESCRIPTORS, DESCRIPTORS)
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, limits)
        self.address = address_of(self.process)
        self.pid = guarded(self.process.pid)
        self.refused = refusal_of(self.address, STRANGE)
        self.actor = cluster.start("actor", "--learner", self.address)
        self.most_descriptors = 0
        self.port = int(self.address.rsplit(":", 1)[1])

    def goes_on(self) -> None:
        """Wait for a new checkpoint, after more frames."""
        frames, newest = self.frames(), self.cluster.checkpoints()[-1:]

        def more() -> bool:
            used = len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
            self.most_descriptors = max(self.most_descriptors, used)
            self.process.runs()
            self.actor.runs()
            return self.frames() > frames and self.cluster.checkpoints()[-1:] > newest

        wait_for(more, "a new checkpoint with more frames", 120)

    def frames(self) -> int:
        return int(self.cluster.counters().get("env_frames", 0))


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Learner]:
    with socket.create_server(("127.0.0.1", 0)) as drawn:
        port = drawn.getsockname()[1]
    folder = tmp_path_factory.mktemp("bounds")
    with cluster(folder, f"learner.metrics_port={port}") as made:
        yield Learner(made, port)


@pytest.mark.slow
def test_the_first_hello_does_not_fix_the_spec(learner: Learner) -> None:
    assert learner.refused.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "uint8[1000000]" in str(learner.refused.details())
    learner.goes_on()


@pytest.mark.slow
def test_half_sent_messages_before_hello_are_bounded(learner: Learner) -> None:
    learner.goes_on()
    pid = learner.pid
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
        assert len(list(Path(f"/proc/{learner.pid}/fd").iterdir())) < DESCRIPTORS - 8


@pytest.mark.slow
def test_all_sockets_together_leave_descriptors_for_checkpoints(learner: Learner) -> None:
    """Each alone is bounded; the sum of the bounds is, too."""
    learner.goes_on()
    unix = f"{learner.cluster.run}/learner.sock"
    doors: list[tuple[socket.AddressFamily, socket.SocketKind, Any]] = [
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", learner.port)),
        (socket.AF_UNIX, socket.SOCK_STREAM, unix),
        (socket.AF_UNIX, socket.SOCK_SEQPACKET, f"{unix}{SUFFIX}"),
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", learner.http_port)),
    ]
    with contextlib.ExitStack() as stack:
        for family, kind, address in doors:
            for _ in range(150):
                one = stack.enter_context(socket.socket(family, kind))
                one.setblocking(False)  # all at once, before the first ones expire
                one.connect_ex(address)
        learner.most_descriptors = 0
        learner.goes_on()
        assert learner.most_descriptors < DESCRIPTORS - 8

    def answers() -> bool:  # once the learner has seen that the others are gone
        return refusal_of(learner.address, STRANGE).code() == grpc.StatusCode.INVALID_ARGUMENT

    wait_for(answers, "an answer to a stranger")
    learner.goes_on()
