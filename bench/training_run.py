"""A real `seedbed train` in processes of its own, which can be held while others are measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from bench.child import failed, rss_bytes
from seedbed.rpc import channels
from seedbed.runs.layout import socket_path
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc

START_S = 300.0
END_S = 30.0
STATUS_S = 20.0


class TrainingRun:
    """Learner and actor of an experiment, as production starts them.

    They are a process group of their own in our session: should the benchmark be killed while they
    are held, the kernel sends them SIGHUP and lets them go.
    """

    def __init__(self, experiment: Path, run_dir: Path) -> None:
        self._log = run_dir.with_suffix(".log")
        command = [sys.executable, "-m", "seedbed.cli.main", "train", str(experiment)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--run-dir", str(run_dir)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
                cwd=Path(__file__).parents[1],
            )  # fmt: skip
        self._channel = channels.channel(f"unix:{socket_path(run_dir.absolute())}")
        self._stub = wire_grpc.InferenceStub(self._channel)
        self._held = False

    def status(self) -> dict[str, Any]:
        """The learner's status of now, with `read_at` (seconds) and `rss` (bytes) of learner and
        actors."""
        try:
            reply = self._stub.GetStatus(
                wire.GetStatusRequest(), timeout=STATUS_S, wait_for_ready=True
            )
        except grpc.RpcError as error:
            raise self._failed(f"does not say its status ({error})") from error
        status: dict[str, Any] = json.loads(reply.json)
        status["read_at"] = time.perf_counter()
        status["rss"] = {"learner": rss_bytes(self._process.pid)}
        status["rss"]["actors"] = sum(rss_bytes(pid) for pid in _children(self._process.pid))
        return status

    def wait_for_updates(self, updates: int) -> None:
        """Until it has trained: everything is compiled then."""
        deadline = time.monotonic() + START_S
        while self.status()["counters"]["updates"] < updates:
            if time.monotonic() > deadline:
                raise self._failed(f"has not made {updates} updates within {START_S:g} s")
            time.sleep(0.2)

    def hold(self) -> None:
        """Stop all its processes where they are."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        self._held = True

    def go_on(self) -> None:
        """Let them go."""
        os.killpg(self._process.pid, signal.SIGCONT)
        self._held = False

    def _failed(self, how: str) -> Exception:
        return failed(f"the training run {how}", self._log)

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._channel.close()
        if self._held:
            self.go_on()
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]
