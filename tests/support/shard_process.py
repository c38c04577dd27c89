"""Replay shards as processes that a test can kill."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from seedbed.replay.codec import insert_request
from seedbed.replay.sequence import SequenceChunk
from seedbed.rpc import channels
from seedbed.v1 import replay_pb2 as wire
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_for

ALPHA = 0.7


class ShardProcess:
    """`seedbed replay` at a unix socket, with its files; can be started again.

    Attributes:
        over_tcp: at a port, not at a unix socket, through whose side learners share memory.
        module: what runs the command.
    """

    over_tcp = False
    module = "seedbed.cli.main"

    def __init__(
        self, folder: Path, capacity: int = 64, alpha: float = ALPHA, directory: bool = True
    ) -> None:
        self.folder = folder
        self.directory = folder / "files"
        self.address = f"127.0.0.1:{free_port()}" if self.over_tcp else f"unix:{folder}/shard"
        self.arguments = ["--sequences", str(capacity), "--priority-exponent", str(alpha)]
        if directory:
            self.arguments += ["--directory", str(self.directory)]
        self.metrics_port = 0
        self._starts = 0
        self.process: Process | None = None

    def start(self, *more: str, file_bytes: int | None = None) -> ShardProcess:
        self._starts += 1
        self.process = Process(
            self.folder / f"start{self._starts}",
            *("replay", "--listen", self.address, "--metrics-port", str(self.metrics_port)),
            *self.arguments,
            *more,
            file_bytes=file_bytes,
            module=self.module,
        )
        return self

    def listening(self) -> ShardProcess:
        def ready() -> bool:
            assert self.process is not None
            self.process.runs()
            return "seedbed: listening on" in self.process.said

        wait_for(ready, "the shard listens")
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.send(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        assert self.process is not None
        self.process.send(signal.SIGTERM)
        return self.process.wait(30)

    def state(self) -> wire.ShardState:
        """Return the answer to GetState."""
        with channels.channel(self.address) as channel:
            ask: Any = channel.unary_unary(
                "/seedbed.v1.Replay/GetState",
                request_serializer=wire.GetStateRequest.SerializeToString,
                response_deserializer=wire.ShardState.FromString,
            )
            state: wire.ShardState = ask(wire.GetStateRequest(), timeout=10, wait_for_ready=True)
            return state

    def get(self, path: str) -> str:
        with urllib.request.urlopen(
            f"http://localhost:{self.metrics_port}{path}", timeout=10
        ) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/status"))
        return found

    def end(self) -> None:
        if self.process is not None and self.process.popen.poll() is None:
            self.process.send(signal.SIGCONT)
            self.kill()


@contextmanager
def shards(folder: Path, count: int, **options: Any) -> Iterator[list[ShardProcess]]:
    """Start shards, and kill them when the block ends."""
    made = []
    for index in range(count):
        (folder / f"shard{index}").mkdir(parents=True)
        made.append(ShardProcess(folder / f"shard{index}", **options))
    try:
        for shard in made:
            shard.start()
        for shard in made:
            shard.listening()
        yield made
    finally:
        for shard in made:
            shard.end()


def insert_message(chunk: SequenceChunk, envs: slice, stream_id: int, sequence: int) -> bytes:
    """Return a serialized insert, as gRPC sends it."""
    return b"".join(insert_request(chunk, envs, stream_id, sequence))


def error_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return the status with which a synchronous stream ended."""
    try:
        for _ in call:
            pass
    except grpc.RpcError as error:
        return error.code(), error.details()  # type: ignore[attr-defined]
    raise AssertionError("it ended well")
