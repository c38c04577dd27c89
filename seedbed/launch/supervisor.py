"""Processes that `seedbed train` starts on this machine: actors, learners, evaluations."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from seedbed.runtime.exit_codes import HELP, ExitCode, SeedbedError
from seedbed.runtime.log_files import rotate_log
from seedbed.runtime.terminal import STDERR

log = logging.getLogger(__name__)

_FAILURES = 5  # of each process
_TAIL_BYTES = 8192
_CAUSE = 4000  # characters of a cause, at most
_NONE: Mapping[str, str] = MappingProxyType({})


def start_seedbed(
    *arguments: str,
    defaults: Mapping[str, str] = _NONE,
    overrides: Mapping[str, str] = _NONE,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start `seedbed` in this interpreter; it ends with the thread that starts it.

    It is a process group of its own: Ctrl-C reaches the process that a person has started, which
    ends the others in their order.

    Args:
        arguments: subcommand first.
        defaults: environment variables, where the environment does not set them.
        overrides: environment variables, whatever the environment sets.
        options: of `Popen`. A file as `stderr` is a log file of a run.
    """
    command = [sys.executable, "-m", "seedbed.cli.main", *arguments]
    if (stderr := options.get("stderr")) is not None:
        overrides = {**overrides, STDERR: "" if isinstance(stderr, int) else "log"}
    return subprocess.Popen(
        [*command, "--exit-with-parent", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        # Without `env` the child reads the C library's `environ`. Another thread may be growing
        # it, because a backend sets variables while it loads, and then the start fails with EFAULT.
        env={**defaults, **os.environ, **overrides},
        process_group=0,
        **options,
    )


class Supervisor(ABC):
    """Keeps processes of one kind running. Use it from one thread at a time.

    Attributes:
        name: what the processes are, such as `actor`.
        window_s: seconds within which so many failures, of all processes, end the run.
        too_many: exit code of a run that ends for too many failures.
        fatal: exit codes after which a restart cannot help.
        stop_timeout_s: seconds between SIGTERM and SIGKILL.
    """

    name: str
    window_s: float
    too_many: ExitCode
    fatal: Collection[int]
    stop_timeout_s: float

    def __init__(self, count: int, logs: Path) -> None:
        self._count, self._logs = count, logs
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._completed: set[int] = set()
        self._failures: list[float] = []

    @abstractmethod
    def start_process(self, index: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a process.

        Args:
            index: number of the process, 0 to `count` - 1.
            errors: file for stderr.
        """

    def log_file(self, index: int) -> Path:
        """Return the file to which stderr is appended.

        Args:
            index: number of the process, 0 to `count` - 1.
        """
        return self._logs / f"{self.name}-{index}.log"

    @property
    def running(self) -> int:
        """Number of processes that run."""
        return sum(process.poll() is None for process in self._processes.values())

    @property
    def all_completed(self) -> bool:
        """True when every process has ended and none is to be restarted."""
        return len(self._completed) == self._count

    def start(self) -> None:
        """Start every process."""
        for index in range(self._count):
            self._start(index)

    def _start(self, index: int) -> None:
        with self.log_file(index).open("ab") as errors:
            self._processes[index] = self.start_process(index, errors)

    def poll(self) -> None:
        """Restart the processes that have ended, as `on_exit` decides, and rotate the logs.

        Raises:
            SeedbedError: `on_exit` ends the run.
        """
        for index, process in list(self._processes.items()):
            rotate_log(self.log_file(index))
            code = process.poll()
            if code is None or index in self._completed:
                continue
            if self.on_exit(index, code):
                self._start(index)
            else:
                self._completed.add(index)

    def on_exit(self, index: int, code: int) -> bool:
        """Return whether to restart a process that has ended: always, up to a rate of failures.

        Raises:
            SeedbedError: with `code` itself where it is fatal, with `too_many` after too many
                failures.
        """
        ended = f"{self.name} {index} ended with {describe_exit(code)}"
        where = self.last_words(index)
        now = time.monotonic()
        self._failures = [at for at in (*self._failures, now) if now - at <= self.window_s]
        if code in self.fatal:
            raise SeedbedError(ExitCode(code), f"{ended}; {where}")
        if len(self._failures) >= _FAILURES * self._count:
            raise SeedbedError(
                self.too_many,
                f"{ended}, failure {len(self._failures)} of {self.name}s within "
                f"{self.window_s:g} s; {where}",
            )
        log.warning("%s; started again; %s", ended, where)
        return True

    def last_words(self, index: int) -> str:
        """Return what a process has logged last, and where, for messages.

        Args:
            index: number of the process, 0 to `count` - 1.
        """
        path = self.log_file(index)
        return f"its last words: {last_cause_in(path)!r}; see {path}"

    def stop(self) -> None:
        """Send SIGTERM to every process, and SIGKILL to those that do not end in time."""
        for process in self._processes.values():
            process.terminate()
            process.send_signal(signal.SIGCONT)  # a stopped process handles SIGTERM then
        deadline = time.monotonic() + self.stop_timeout_s
        for index, process in self._processes.items():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                text = "%s %d did not end within %g s of SIGTERM: killed"
                log.warning(text, self.name, index, self.stop_timeout_s)
                process.kill()
                process.wait()


def describe_exit(code: int) -> str:
    """Describe the end of a process in words.

    Args:
        code: return code of `subprocess`; a signal is below zero.
    """
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    if code not in set(ExitCode):
        return f"exit code {code}"
    return f"exit code {code} ({ExitCode(code).name}: {HELP[ExitCode(code)]})"


# What Python prints of an exception in `__del__`, as a process ends.
_UNRAISABLE = re.compile(
    r"^Exception ignored in:? .*\n(?:Traceback .*\n)?(?:[ \t].*\n)*(?:[\w.]+(?:: .*)?(?:\n|\Z))?",
    re.MULTILINE,
)


def last_cause(log: str) -> str:
    """Return the error that ends a process's log, without the explanation of the exit code.

    An error above that explanation begins with the name of the program and may have several lines.
    Any other one is the last line.
    """
    lines = [line for line in _UNRAISABLE.sub("", log).split("\n") if line.strip()]
    if not lines or not lines[-1].startswith("seedbed: exit code"):
        return "".join(lines[-1:])[:_CAUSE]
    lines.pop()
    starts = [i for i, line in enumerate(lines) if line.startswith("seedbed: ")]
    return "\n".join(lines[starts[-1] if starts else -1 :])[:_CAUSE]


def last_cause_in(path: Path) -> str:
    """Return the `last_cause` in a log file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return last_cause(file.read().decode(errors="replace"))
