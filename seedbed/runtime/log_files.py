"""Bounds of the log files that a process, or its children, append to, and its own stdout."""

import contextlib
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from typing_extensions import override

# So large may a log file become, about, before a new one begins; and so many old ones are kept.
LOG_BYTES = 50_000_000
OLD_LOGS = 2


def rotate_log(path: Path) -> None:
    """Move the content of a log file to NAME.1, and that one to NAME.2, if the file is large.

    The file itself stays, because children append to its descriptor. A line that a child writes
    meanwhile may be lost.

    Args:
        path: the file; need not exist.
    """
    # No failure here may end a run. On a full disk the new lines count more than the old ones.
    with contextlib.suppress(OSError):
        size = path.stat().st_size
        if size < LOG_BYTES:
            return
        for number in range(OLD_LOGS - 1, 0, -1):
            with contextlib.suppress(OSError):
                _old(path, number).replace(_old(path, number + 1))
        with contextlib.suppress(OSError), path.open("rb") as log, _old(path, 1).open("wb") as old:
            log.seek(size - LOG_BYTES)
            old.write(log.read(LOG_BYTES))
        os.truncate(path, 0)


def _old(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


class RunLog(RotatingFileHandler):
    """Log file of a run, whose lines that cannot be written are counted.

    A volume that is full is told once, by a line on stderr, and how many lines are missing by a
    line of the file, once there is room.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=LOG_BYTES, backupCount=OLD_LOGS)
        self._lost = 0

    @override
    def emit(self, record: logging.LogRecord) -> None:
        before = self._lost
        super().emit(record)
        if before and before == self._lost:
            self._lost = 0
            text = f"{before} lines before this one could not be written"
            super().emit(logging.LogRecord(__name__, logging.WARNING, "", 0, text, (), None))

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        self._lost += 1
        if self._lost == 1:
            with contextlib.suppress(OSError):
                print(f"seedbed: {self.baseFilename}: {sys.exception()}", file=sys.stderr)
