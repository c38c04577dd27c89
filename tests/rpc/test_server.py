"""A gRPC server in a thread of its own: it can be closed at any moment of its life."""

from __future__ import annotations

from pathlib import Path

import grpc.aio

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
