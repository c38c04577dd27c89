"""Log lines about peers, which a flood of calls must not turn into a flood of lines."""

import logging
import math
import time
from collections.abc import Callable

A_MINUTE = 10
# Loggers of libraries whose records a peer can cause, one a message.
FOREIGN = ("asyncio", "grpc._cython.cygrpc")


def limit_foreign() -> None:
    """Limit the records of `FOREIGN` to the first few a minute of each logger, from now on."""
    for name in FOREIGN:
        logger = logging.getLogger(name)
        if not any(isinstance(each, _Limit) for each in logger.filters):
            logger.addFilter(_Limit())


class _Limit(logging.Filter):
    """Drops records above a few a minute; the first one of a later minute tells how many."""

    def __init__(self) -> None:
        super().__init__()
        self._minute = _Minute()

    def filter(self, record: logging.LogRecord) -> bool:
        dropped, shows = self._minute.count(time.monotonic())
        if dropped:
            record.msg = f"({dropped} records were left out) {record.getMessage()}"
            record.args = ()
        return shows


class _Minute:
    """Counts the lines of a minute."""

    def __init__(self) -> None:
        self._since, self._lines = -math.inf, 0

    def count(self, now: float) -> tuple[int, bool]:
        """Count a line; return how many of an earlier minute were left out, and if it is shown."""
        dropped = 0
        if now - self._since >= 60:
            dropped = max(self._lines - A_MINUTE, 0)
            self._since, self._lines = now, 0
        self._lines += 1
        return dropped, self._lines <= A_MINUTE


class PeerLog:
    """Log lines about peers: the first few a minute of each kind, then how many were left out.

    Args:
        log: logger of the module.
        now: clock, in seconds.
    """

    def __init__(self, log: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._log, self._now = log, now
        self._minutes: dict[str, _Minute] = {}  # by kind

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
        dropped, shows = self._minutes.setdefault(kind, _Minute()).count(self._now())
        if dropped:
            self._log.log(level, "%d more like this (%s) were left out", dropped, kind)
        if shows:
            self._log.log(level, message, *values)
