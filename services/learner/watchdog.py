"""Watchdog: fails a process whose threads have work and make no progress."""

from __future__ import annotations

from collections.abc import Callable

from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads

# Takes a limit in seconds. Returns why a part has made no progress for longer, or None.
Probe = Callable[[float], str | None]


class Watchdog:
    """Asks the probes of all parts.

    Args:
        timeout_s: longest time without progress, in seconds.
        probes: one for each part.
        threads: the threads that fail with the first cause.
    """

    def __init__(self, timeout_s: float, probes: list[Probe], threads: Threads) -> None:
        self._timeout_s = timeout_s
        self.probes = probes
        self._threads = threads

    def check(self) -> None:
        """Fail the threads if a part makes no progress, with the part and what it had to do."""
        cause = self.cause()
        if cause is not None:
            text = f"{cause} (learner.watchdog_timeout_s is {self._timeout_s:g})"
            self._threads.fail("watchdog", SeedbedError(ExitCode.THREAD_STUCK, text))

    def cause(self) -> str | None:
        """Return why a part makes no progress, or None."""
        return next(filter(None, (probe(self._timeout_s) for probe in self.probes)), None)
