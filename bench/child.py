"""Processes that a measurement starts: asked by lines of JSON on stdin, answering on stdout.

A child ends when its stdin does, so none outlives the benchmark, whatever ends that.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from seedbed.runtime.exit_codes import ExitCode, SeedbedError

START_S = 180.0  # importing TensorFlow and compiling, on a busy machine
END_S = 15.0
_LOG_LINES = 15


class Child:
    """A Python module of `bench` in a process of its own; its stderr goes to a log.

    Raises:
        SeedbedError: it ended, or did not answer in time; with the last lines of its log.
    """

    def __init__(self, module: str, folder: Path, *arguments: str, name: str = "") -> None:
        self.name = name or module
        self._log = folder / f"{self.name}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"bench.{module}", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).parents[1],
                bufsize=0,
            )
        self.hello = self._answer(START_S)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(self, what: str, deadline_s: float = 60.0, **arguments: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        self.send(what, **arguments)
        return self._answer(deadline_s)

    def send(self, what: str, **arguments: Any) -> None:
        """Send a request; `receive` gives the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"what": what, **arguments}).encode() + b"\n")
        except BrokenPipeError:
            raise self._failed("ended") from None

    def receive(self, deadline_s: float = 60.0) -> dict[str, Any]:
        """The answer to `send`."""
        return self._answer(deadline_s)

    def _answer(self, deadline_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        file, end, line = self._process.stdout.fileno(), time.monotonic() + deadline_s, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([file], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise self._failed(f"did not answer within {deadline_s:g} s")
            part = os.read(file, 65536)
            if not part:
                raise self._failed("ended")
            line += part
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self, how: str) -> SeedbedError:
        return failed(f"the benchmark's process {self.name} {how}", self._log)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def failed(what: str, log: Path) -> SeedbedError:
    """An error with the end of a log, which is gone afterwards."""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return SeedbedError(ExitCode.INTERNAL, "\n".join([f"{what}; the end of its log:", *lines]))


def serve(handlers: dict[str, Callable[..., dict[str, Any]]], **hello: Any) -> None:
    """A child's main loop: say hello, then answer requests until stdin ends."""
    print(json.dumps(hello), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(handlers[request.pop("what")](**request)), flush=True)


def sleep_and_until(seconds: float, done: Callable[[], bool]) -> None:
    """Sleep, and on a machine that is too busy go on until something was `done`, or `START_S`."""
    end = time.monotonic() + START_S
    time.sleep(seconds)
    while not done() and time.monotonic() < end:
        time.sleep(0.01)


def rss_bytes(pid: int) -> int:
    """Resident size of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
