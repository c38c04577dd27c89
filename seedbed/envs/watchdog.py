"""Watchdog: a deadline for calls into environments, which may never return.

`AtariVectorEnv.recv()` waits without end after one of its workers has failed, and a user's
environment may hang. No exception can interrupt such a call, so the watchdog ends the process. Its
supervisor (Kubernetes, `seedbed train`) starts it again.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable

from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.guard import leaving


class Watchdog:
    """Context manager that ends the process if its block takes longer than a deadline.

    One thread per watchdog checks the clock four times per deadline, at most once a second. The
    block itself costs two assignments. The call in the block must sometimes release the
    interpreter lock.

    Args:
        name: the guarded environments, for the error.
        deadline_s: longest time of a block; infinite: no thread, and no end.
        on_late: called with the seconds that a late block has taken, in the watchdog's thread,
            before the process ends; None prints an error.
    """

    def __init__(
        self, name: str, deadline_s: float, on_late: Callable[[float], None] | None = None
    ) -> None:
        self._name = name
        self._deadline_s = deadline_s
        self._on_late = on_late or self._print_error
        self._since: float | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watchdog {name}", daemon=True)
        if deadline_s < math.inf:
            self._thread.start()

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._since = None

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=self._deadline_s)

    def _watch(self) -> None:
        interval_s = min(1.0, self._deadline_s / 4)
        while not self._closed.wait(interval_s):
            since = self._since
            if since is None:
                continue
            busy_s = time.monotonic() - since
            if busy_s > self._deadline_s:
                self._end(busy_s)

    def _end(self, busy_s: float) -> None:
        self._on_late(busy_s)
        # os._exit, because an ordinary exit would wait for the thread that hangs.
        leaving()
        os._exit(ExitCode.ENVIRONMENT)

    def _print_error(self, busy_s: float) -> None:
        print(
            f"exit {ExitCode.ENVIRONMENT:d} ({ExitCode.ENVIRONMENT.name}): {self._name} has not "
            f"come back for {busy_s:.0f} s (limit {self._deadline_s:g} s); run `seedbed check env`",
            file=sys.stderr,
            flush=True,
        )
