"""Commands of `seedbed` in processes of their own, as production starts them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import grpc

from bench.child import ROOT, failed, tree
from seedbed.rpc import channels
from seedbed.runs.layout import socket_path
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc

START_S = 900.0  # the first update of a large network compiles, on cores that may be few
END_S = 60.0
STATUS_S = 120.0  # the first one waits for the libraries' start
CHECK_S = 1.0  # between two checks whether a process that does not answer is there


class Command:
    """A command in a process group of its own in our session.

    Should the benchmark be killed while the group is held, the kernel sends it SIGHUP and lets it
    go.

    Args:
        log: File of stderr. stdout goes to the file of that name with `.json`.
        arguments: Arguments of `seedbed`, the subcommand first.
    """

    def __init__(self, log: Path, *arguments: str) -> None:
        self._log, self._output = log, log.with_suffix(".json")
        self._is_told = False
        self._what = f"`seedbed {arguments[0]}` ({log.stem})"
        with log.open("wb") as errors, self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "seedbed.cli.main", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                process_group=0,
                cwd=ROOT,
            )

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, None while the process runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise SeedbedError if the process has ended."""
        if self.exit_code is not None:
            raise self.failed(f"ended with exit code {self.exit_code}")

    def failed(self, how: str) -> Exception:
        """Return an error with the end of the log."""
        return failed(f"{self._what} {how}", self._log)

    def wait_until_log_says(self, words: str, longest_s: float) -> None:
        """Wait for words in the log."""
        deadline = time.monotonic() + longest_s
        while words not in self._log.read_text():
            self.check()
            if time.monotonic() > deadline:
                raise self.failed(f"does not say {words!r} within {longest_s:g} s")
            time.sleep(0.05)

    def printed(self) -> Any:
        """Return the JSON on stdout of a process that has ended."""
        if self.exit_code != 0:
            code = self.exit_code
            raise self.failed("is still there" if code is None else f"ended with exit code {code}")
        return json.loads(self._output.read_text())

    def terminate(self) -> None:
        """Ask the process to end, once: a second signal would end it without a checkpoint."""
        if self.exit_code is None and not self._is_told:
            self._is_told = True
            self.go_on()  # it may be held
            self._process.terminate()

    def hold(self) -> None:
        """Stop the process and all below it where they are: the guard passes on no SIGSTOP."""
        self._signal_all(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them go."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in tree(self.pid):
            with contextlib.suppress(ProcessLookupError):  # a learner's `nvidia-smi` ends meanwhile
                os.kill(pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class TrainingRun(Command):
    """A learner with its actors, which can be held while others are measured.

    Args:
        experiment: Path of the experiment.
        run_dir: Made by the run.
        options: More arguments of `seedbed train`.
        port: Of the learner, which then is `seedbed learner`, without actors; None for both.

    Attributes:
        socket: Path of the learner's socket.
    """

    def __init__(
        self, experiment: str, run_dir: Path, *options: str, port: int | None = None
    ) -> None:
        self.socket = Path(socket_path(run_dir.absolute()))
        command = ["train", experiment]
        if port is not None:
            listen = f"--listen=127.0.0.1:{port}", f"--listen=unix:{self.socket}"
            command = ["learner", experiment, *listen]
        super().__init__(run_dir.with_suffix(".log"), *command, "--run-dir", str(run_dir), *options)
        self._channel = channels.channel(f"unix:{self.socket}")
        self._stub = wire_grpc.InferenceStub(self._channel)

    def status(self) -> dict[str, Any]:
        """Return the learner's status of now, with `read_at` (seconds)."""
        deadline = time.monotonic() + STATUS_S
        while True:
            asked = self._stub.GetStatus.future(
                wire.GetStatusRequest(), timeout=STATUS_S, wait_for_ready=True
            )
            try:
                reply = self._when_answered(asked)
                break
            except grpc.RpcError as error:
                # A learner on a busy machine may read a request too late, and refuses it then.
                if time.monotonic() > deadline:
                    raise self.failed(f"does not say its status ({error})") from error
                self.check()
        return {**json.loads(reply.json), "read_at": time.perf_counter()}

    def _when_answered(self, asked: Any) -> Any:
        while True:
            try:
                return asked.result(timeout=CHECK_S)
            except grpc.FutureTimeoutError:
                self.check()

    def wait_for_environments(self, environments: int) -> None:
        """Wait until so many are connected; the status counts them every `logging.interval_s`."""
        deadline = time.monotonic() + START_S
        while (connected := self.status()["numbers"].get("environments") or 0) < environments:
            self.check()
            if time.monotonic() > deadline:
                text = f"has {connected} of {environments} environments after {START_S:g} s"
                raise self.failed(text)
            time.sleep(0.1)

    def wait_for_updates(self, updates: int) -> dict[str, Any]:
        """Return the status once so many updates were made: everything is compiled then."""
        deadline = time.monotonic() + START_S
        while (status := self.status())["counters"]["updates"] < updates:
            self.check()
            if time.monotonic() > deadline:
                raise self.failed(f"has not made {updates} updates within {START_S:g} s")
            time.sleep(0.1)
        return status

    def window(self, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the status at the begin and at the end of a window, in which it updates."""
        before = self.status()
        time.sleep(seconds)
        return before, self.wait_for_updates(before["counters"]["updates"] + 1)

    def kill(self) -> None:
        """End all its processes at once, as a node that is lost does."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __exit__(self, *error: object) -> None:
        self._channel.close()
        super().__exit__(*error)
