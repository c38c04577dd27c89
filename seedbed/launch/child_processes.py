"""What `seedbed train` does with the processes that it has started, actors and learners."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Collection, Mapping

from seedbed.runtime.exit_codes import HELP, ExitCode, SeedbedError

log = logging.getLogger(__name__)


def process_environment() -> dict[str, str]:
    """For `env` of every `Popen`. Without it the child reads the C library's `environ`, which
    another thread may be growing: a backend sets variables while it loads, and then the start of a
    process fails with EFAULT.
    """
    return os.environ.copy()


def end_all(what: str, processes: Mapping[int, subprocess.Popen[bytes]], within_s: float) -> None:
    """SIGTERM to all, and SIGKILL to those that do not leave in time. `what` they are, such as
    `actor`, is for the log.
    """
    for process in processes.values():
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + within_s
    for index, process in processes.items():
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.warning("%s %d did not end within %g s of SIGTERM: killed", what, index, within_s)
            process.kill()
            process.wait()


class Restarts:
    """Whether a process that has ended is to be started again.

    Args:
        what: they are, such as `actor`.
        most: failures of all of them together within `window_s` that end everything.
        exit_code: to end it with.
        fatal: exit codes after which a start cannot help.
    """

    def __init__(
        self, what: str, most: int, window_s: float, exit_code: ExitCode, fatal: Collection[int]
    ) -> None:
        self._what, self._most, self._window_s = what, most, window_s
        self._exit_code, self._fatal = exit_code, fatal
        self._failures: deque[float] = deque()

    def allow(self, index: int, code: int, where: str) -> None:
        """Returns where it is to be started again, having said so. `where` names its log.

        Raises:
            SeedbedError: with a fatal code itself, else with `exit_code`.
        """
        what = f"{self._what} {index} ended with {describe_end(code)}"
        now = time.monotonic()
        self._failures.append(now)
        while now - self._failures[0] > self._window_s:
            self._failures.popleft()
        if code in self._fatal:
            raise SeedbedError(ExitCode(code), f"{what}; {where}")
        if len(self._failures) >= self._most:
            raise SeedbedError(
                self._exit_code,
                f"{what}, failure {len(self._failures)} of {self._what}s within "
                f"{self._window_s:g} s; {where}",
            )
        log.warning("%s; started again; %s", what, where)


def describe_end(code: int) -> str:
    """A return code of `subprocess` in words."""
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    try:
        return f"exit code {code} ({ExitCode(code).name}: {HELP[ExitCode(code)]})"
    except ValueError:
        return f"exit code {code}"
