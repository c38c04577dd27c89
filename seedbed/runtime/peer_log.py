"""Log lines about peers, which a flood of calls must not turn into a flood of lines."""

import logging
import time
from collections.abc import Callable

A_MINUTE = 10


class PeerLog:
    """Log lines about peers: the first few a minute of each kind, then how many were left out.

    Args:
        log: logger of the module.
        now: clock, in seconds.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        # Start of the minute and lines in it, by kind.
        self._counts: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, message: str, *values: object) -> None:
        """Log a warning, or count it; see `info`."""
        self._line(logging.WARNING, kind, message, values)

    def info(self, kind: str, message: str, *values: object) -> None:
        """Log a line, or count it. One thread at a time.

        Args:
            kind: one of a few words of this program, never a text of a peer.
            message: format of the line.
            values: values of the format; texts of peers have gone through `printable`.
        """
        self._line(logging.INFO, kind, message, values)

    def _line(self, level: int, kind: str, message: str, values: tuple[object, ...]) -> None:
        now = self._now()
        since, count = self._counts.get(kind, (now, 0))
        if now - since >= 60:
            if count > A_MINUTE:
                self._log.log(level, "%d more like this (%s) were left out", count - A_MINUTE, kind)
            since, count = now, 0
        self._counts[kind] = since, count + 1
        if count < A_MINUTE:
            self._log.log(level, message, *values)
