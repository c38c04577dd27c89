"""Processes that `seedbed train` starts on this machine: actors and learners."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from seedbed.runtime.exit_codes import HELP, ExitCode, SeedbedError

log = logging.getLogger(__name__)


def process_environment() -> dict[str, str]:
    """Return the variables for `env` of every `Popen`.

    Without `env` the child reads the C library's `environ`. Another thread may be growing it,
    because a backend sets variables while it loads, and then the start fails with EFAULT.
    """
    return os.environ.copy()


def seedbed_command(*arguments: str) -> list[str]:
    """Return the command line of `seedbed`, in this interpreter."""
    return [sys.executable, "-m", "seedbed.cli.main", *arguments]


class Command(NamedTuple):
    """Command line and environment of one process.

    Attributes:
        arguments: arguments of `seedbed`, subcommand first.
        log: the file to which stderr is appended.
        output: the file that stdout replaces. None: stdout goes to `log`.
        defaults: environment variables, where the environment does not set them.
        own_group: keep a terminal's signals from the process.
    """

    arguments: Sequence[str]
    log: Path
    output: Path | None = None
    defaults: Mapping[str, str] = MappingProxyType({})
    own_group: bool = False


class RestartPolicy:
    """Restarts every process that has ended, up to a rate of failures.

    Args:
        name: what the processes are, such as `actor`.
        most: failures of all processes within `window_s` seconds that end the run.
        window_s: length of that window.
        exit_code: exit code of a run that ends for too many failures.
        fatal: exit codes after which a restart cannot help.
    """

    def __init__(
        self,
        name: str,
        most: int,
        window_s: float,
        exit_code: ExitCode,
        fatal: Collection[int],
    ) -> None:
        self._name, self._most, self._window_s = name, most, window_s
        self._exit_code, self._fatal = exit_code, fatal
        self._failures: deque[float] = deque()

    def on_exit(self, index: int, code: int, where: str) -> bool:
        """Return True, because process `index` is to be restarted after it ended with `code`.

        Args:
            index: number of the process.
            code: return code of the process.
            where: where the process has logged its end, for the message.

        Raises:
            SeedbedError: with `code` itself where it is fatal, with `exit_code` after too many
                failures.
        """
        ended = f"{self._name} {index} ended with {describe_exit(code)}"
        now = time.monotonic()
        self._failures.append(now)
        while now - self._failures[0] > self._window_s:
            self._failures.popleft()
        if code in self._fatal:
            raise SeedbedError(ExitCode(code), f"{ended}; {where}")
        if len(self._failures) >= self._most:
            raise SeedbedError(
                self._exit_code,
                f"{ended}, failure {len(self._failures)} of {self._name}s within "
                f"{self._window_s:g} s; {where}",
            )
        log.warning("%s; started again; %s", ended, where)
        return True


class Supervisor:
    """Keeps `count` processes running. Use it from one thread at a time.

    Args:
        name: what the processes are, such as `actor`.
        count: number of processes.
        command_of: returns the command of process `index`, 0 to `count` - 1.
        on_exit: returns whether to restart process `index`, which ended with a return code.
        stop_timeout_s: seconds between SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        name: str,
        count: int,
        command_of: Callable[[int], Command],
        on_exit: Callable[[int, int], bool],
        stop_timeout_s: float,
    ) -> None:
        self._name, self._count, self._command_of = name, count, command_of
        self._on_exit, self._stop_timeout_s = on_exit, stop_timeout_s
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._completed: set[int] = set()

    @property
    def running(self) -> int:
        """Number of processes that run."""
        return sum(process.poll() is None for process in self._processes.values())

    @property
    def all_completed(self) -> bool:
        """True when every process has ended and none is to be restarted."""
        return len(self._completed) == self._count

    def start_all(self) -> None:
        """Start every process."""
        for index in range(self._count):
            self._start(index)

    def _start(self, index: int) -> None:
        command = self._command_of(index)
        with ExitStack() as files:
            errors = files.enter_context(command.log.open("ab"))
            output = files.enter_context(command.output.open("wb")) if command.output else errors
            self._processes[index] = subprocess.Popen(
                seedbed_command(*command.arguments, "--exit-with-parent", str(os.getpid())),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**command.defaults, **process_environment()},
                process_group=0 if command.own_group else None,
            )

    def poll(self) -> None:
        """Restart the processes that have ended, as `on_exit` decides. Never waits.

        Raises:
            SeedbedError: `on_exit` ends the run.
        """
        for index, process in list(self._processes.items()):
            code = process.poll()
            if code is None or index in self._completed:
                continue
            if self._on_exit(index, code):
                self._start(index)
            else:
                self._completed.add(index)

    def terminate_all(self) -> None:
        """Send SIGTERM to every process, and SIGKILL to those that do not end in time."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._stop_timeout_s
        for index, process in self._processes.items():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning(
                    "%s %d did not end within %g s of SIGTERM: killed",
                    self._name,
                    index,
                    self._stop_timeout_s,
                )
                process.kill()
                process.wait()


def describe_exit(code: int) -> str:
    """Describe a return code of `subprocess` in words."""
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    try:
        return f"exit code {code} ({ExitCode(code).name}: {HELP[ExitCode(code)]})"
    except ValueError:
        return f"exit code {code}"


def last_cause(log: str) -> str:
    """Return the last line of a process's log that is not the explanation of its exit code."""
    causes = [
        line
        for line in log.split("\n")
        if line.strip() and not line.startswith("seedbed: exit code")
    ]
    return causes[-1][:500] if causes else ""
