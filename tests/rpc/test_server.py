"""A gRPC server in a thread of its own: it can be closed at any moment of its life."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedbed.rpc import channels
from seedbed.rpc.server import ServerThread
from seedbed.runtime.threads import Threads


class Nothing(ServerThread):
    """Serves only the health service."""

    def _add(self, server: grpc.aio.Server) -> None:
        pass


def test_one_that_is_closed_before_it_starts_ends(tmp_path: Path) -> None:
    threads = Threads()
    server = Nothing(f"unix:{tmp_path}/socket", threads)
    server.close()
    server.start()
    assert threads.join(20) == []
    assert threads.failure is None


def test_after_its_end_nothing_is_left_to_say(tmp_path: Path) -> None:
    threads = Threads()
    server = Nothing(f"unix:{tmp_path}/socket", threads)
    server.start()
    server.set_serving()
    server.close()
    assert threads.join(20) == []
    server.set_serving()
    server.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_all_addresses_are_of_both_families() -> None:
    """What the chart listens on, in a cluster of either family."""
    threads = Threads()
    server = Nothing("[::]:0", threads)
    port = server.start().rpartition(":")[2]
    for host in ("127.0.0.1", "[::1]"):
        with channels.channel(f"{host}:{port}") as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=20
            )
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    server.close()
    assert threads.join(20) == []
