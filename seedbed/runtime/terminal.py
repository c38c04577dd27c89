"""What stderr shows: short lines on a terminal, JSON for a cloud, no noise of libraries."""

import contextlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

# Clears the progress line, which is refreshed in place.
CLEAR = "\r\x1b[K"
# Lines that TensorFlow writes before it reads its own settings of what to write: nothing is wrong.
_NOISE = re.compile(
    rb"^(?:WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    rb"|I0000 [^\n]*)\n",
    re.MULTILINE,
)


class _Stderr:
    """File descriptor that reaches the terminal or the file that stderr is."""

    descriptor = 2


def is_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return os.isatty(_Stderr.descriptor)


def write(text: str) -> None:
    """Write a line to stderr, in place of a progress line. Safe in a signal handler."""
    clear = CLEAR if is_terminal() else ""
    line = _json(text, "NOTICE") if is_json() else f"{clear}{text}"
    with contextlib.suppress(OSError):
        os.write(_Stderr.descriptor, f"{line}\n".encode())


def is_json() -> bool:
    """Return whether each line on stderr is a JSON object: `SEEDBED_LOG_FORMAT=json`."""
    return os.environ.get("SEEDBED_LOG_FORMAT") == "json"


def print_lines(text: str, severity: str = "INFO") -> None:
    """Write a text of one or more lines to stderr, as one JSON object where that is wanted."""
    print(_json(text, severity) if is_json() else text, file=sys.stderr, flush=True)


def _json(text: str, severity: str, **more: str) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "severity": severity, "message": text, **more})


class _JsonFormatter(logging.Formatter):
    """One JSON object a record, with the names that Google Cloud Logging and others read."""

    def format(self, record: logging.LogRecord) -> str:
        more = {"logger": record.name, "thread": record.threadName or ""}
        if record.exc_info:
            more["exception"] = self.formatException(record.exc_info)
        return _json(record.getMessage(), record.levelname, **more)


def log_formatter() -> logging.Formatter:
    """Return the format of log lines on stderr: the time of day and the text on a terminal."""
    if is_json():
        return _JsonFormatter()
    if is_terminal():
        return _TerminalFormatter(f"{CLEAR}%(asctime)s %(message)s", "%H:%M:%S")
    return logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s")


class _TerminalFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.levelno >= logging.WARNING:
            record.message = f"{record.levelname}: {record.message}"
        return super().formatMessage(record)


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """Drop what a library writes while it loads and means nothing; a log file gets it all."""
    if not (is_terminal() or is_json()):
        yield
        return
    terminal = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    _Stderr.descriptor = terminal

    def forward() -> None:
        while chunk := os.read(reader, 65536):
            os.write(terminal, _NOISE.sub(b"", chunk))

    thread = threading.Thread(target=forward, name="stderr", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(terminal, 2)  # closes the last end to write to
        _Stderr.descriptor = 2
        thread.join(1.0)
        if not thread.is_alive():  # else a process that was started meanwhile holds the pipe
            os.close(reader)
            os.close(terminal)
