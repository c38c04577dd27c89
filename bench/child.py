"""Objects that a measurement makes in processes of their own.

A child is asked and answers in JSON over a pipe. It ends when the pipe does, so none outlives the
benchmark, whatever ends that.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from seedbed.rpc.polling import EXPERIMENTS
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

ROOT = Path(__file__).parents[1]
START_S = 180.0  # importing TensorFlow and compiling, on a busy machine
END_S = 15.0
_LOG_LINES = 15


class Child:
    """An object in a process of its own; its stderr goes to a log.

    Args:
        target: `module:Class`, the module within `bench`.
        folder: Where the log goes.
        name: Of the child, in messages and of its log.
        by_engine: Whether gRPC's event engine reads its sockets, as gRPC comes.
        arguments: Of the class; JSON.

    Raises:
        SeedbedError: it ended, or did not answer in time; with the last lines of its log.
    """

    def __init__(
        self, target: str, folder: Path, name: str, by_engine: bool = False, **arguments: Any
    ) -> None:
        self._name = name
        self._log = folder / f"{name}.log"
        self._pipe, theirs = Pipe()
        fd = theirs.fileno()
        with self._log.open("ab") as log, theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.child", target, json.dumps(arguments), str(fd)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[fd],
                cwd=ROOT,
                env=os.environ | ({EXPERIMENTS: ""} if by_engine else {}),
            )
        self._answer(START_S)

    def ask(self, method: str, deadline_s: float = 60.0, **arguments: Any) -> Any:
        """Call a method of the object, and return its result.

        Args:
            method: Name of the method.
            deadline_s: Longest wait for the result.
            arguments: Of the method; JSON.
        """
        try:
            self._pipe.send_bytes(json.dumps([method, arguments]).encode())
        except BrokenPipeError:
            raise self._failed("ended") from None
        return self._answer(deadline_s)

    def _answer(self, deadline_s: float) -> Any:
        if not self._pipe.poll(deadline_s):
            raise self._failed(f"did not answer within {deadline_s:g} s")
        try:
            return json.loads(self._pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise self._failed("ended") from None

    def _failed(self, how: str) -> SeedbedError:
        return failed(f"the benchmark's process {self._name} {how}", self._log)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def failed(what: str, log: Path) -> SeedbedError:
    """Return an error with the end of a log, which is gone afterwards."""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return SeedbedError(ExitCode.INTERNAL, "\n".join([f"{what}; the end of its log:", *lines]))


def sleep_and_until(seconds: float, done: Callable[[], bool]) -> None:
    """Sleep, and on a machine that is too busy go on until something was `done`, or `START_S`."""
    end = time.monotonic() + START_S
    time.sleep(seconds)
    while not done() and time.monotonic() < end:
        time.sleep(0.01)


def rss_bytes(pid: int) -> int:
    """Return the resident size of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> list[int]:
    """Return the number of a process, and of all that it and its children have started."""
    pids = [pid]
    for parent in pids:  # grows meanwhile
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it has ended
                pids += map(int, task.read_text().split())
    return pids


def main() -> None:
    """Make the object that the command line names, and answer calls until the pipe ends."""
    target, arguments, file = sys.argv[1:]
    module, _, name = target.partition(":")
    pipe = Connection(int(file))
    try:
        made = getattr(importlib.import_module(f"bench.{module}"), name)(**json.loads(arguments))
        pipe.send_bytes(b"null")
        while True:
            method, asked = json.loads(pipe.recv_bytes())
            pipe.send_bytes(json.dumps(getattr(made, method)(**asked)).encode())
    except EOFError:
        pass
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)  # there is nothing to keep, and threads may still run


if __name__ == "__main__":
    main()
