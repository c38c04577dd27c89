"""What stderr shows: short lines on a terminal, JSON for a cloud, and lines of this program alone.

What TensorFlow, JAX and the libraries below them say while all is well is for the run's log file.
"""

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from seedbed.runtime import streams
from seedbed.runtime.peer_log import limit_foreign

# Variable of the environment: `log` where stderr is a log file of a run.
STDERR = "SEEDBED_STDERR"
# Logs the lines of libraries that are written below Python.
foreign = logging.getLogger("seedbed.libraries")
_LIBRARIES = frozenset({"absl", "gymnasium", "h5py", "jax", "jaxlib", "keras", "tensorflow"})
_OF_GYMNASIUM = re.compile(r"\x1b\[[\d;]*m(WARN|ERROR|INFO): (.*?)(?:\x1b\[0m)?", re.DOTALL)
# Lines that TensorFlow and XLA write before they read their own settings of what to write.
# Nothing is wrong: INFO, and what a library for GPUs says of itself or where there is no GPU.
_NOISE = (
    r"(?:WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR"
    r"|I\d{4} \d\d:\d\d:\d+\.\d+ [^\n]*|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: I [^\n]*"
    r"|(?:[WE]\d{4} |\d{4}-\d\d-\d\d )[^\n]*(?:Unable to register cu\w+ factory"
    r"|computation placer already registered|ailed call to cuInit|Cannot dlopen some GPU libraries)"
    r"[^\n]*)\n"
)
# Reads stdin to its end: noise goes to stdout, everything else to stderr. The line of progress,
# which a terminal refreshes in place, has no end of line.
_SIEVE = """
import os, re, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
noise, rest = re.compile(sys.argv[1].encode()), b""
while chunk := os.read(0, 65536):
    rest += chunk
    end = len(rest) if rest[:1] in b"\\r\\x1b" and b"\\n" not in rest else rest.rfind(b"\\n") + 1
    lines, rest = rest[:end], rest[end:]
    for line in noise.findall(lines):
        os.write(1, line)
    os.write(2, noise.sub(b"", lines))
os.write(2, rest)
"""
_SIEVE_S = 5.0
# Clears the progress line, which is refreshed in place.
CLEAR = "\r\x1b[K"


class _Stderr:
    """File descriptor that reaches the terminal or the file that stderr is."""

    descriptor = 2


def terminal_size(out: TextIO) -> os.terminal_size:
    """Return columns and lines of a terminal; 80 and 24 where they are not known."""
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    return os.terminal_size((size.columns or 80, size.lines or 24))


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
    streams.restore()
    print(_json(text, severity) if is_json() else text, file=sys.stderr, flush=True)


def stamp(seconds: float | None = None) -> str:
    """Return the time stamp of a log: ISO 8601, in milliseconds and with the zone.

    Args:
        seconds: Unix time; None is now.
    """
    at = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return at.astimezone().isoformat(timespec="milliseconds")


def _json(text: str, severity: str, **more: str) -> str:
    return json.dumps({"time": stamp(), "severity": severity, "message": text, **more})


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
    return file_formatter()


def file_formatter() -> logging.Formatter:
    """Return the format of lines in a log file, which is that of stderr off a terminal."""
    return _StampFormatter("%(asctime)s %(levelname).1s %(name)s: %(message)s")


class _StampFormatter(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return stamp(record.created)


class _TerminalFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.levelno >= logging.WARNING:
            record.message = f"{record.levelname}: {record.message}"
        return super().formatMessage(record)


def log_to_stderr() -> None:
    """Log to stderr from now on, without what libraries say while all is well.

    Their lines and warnings reach the other handlers of the root logger, such as a run's log file.
    Errors of theirs are shown.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter())
    if not is_log_file():
        handler.addFilter(_is_for_people)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # A volume that is full would cost a traceback on stderr for each line.
    logging.raiseExceptions = False
    limit_foreign()
    foreign.setLevel(logging.DEBUG)
    if warnings.showwarning is not _log_warning:
        _Warnings.others = staticmethod(warnings.showwarning)
        warnings.showwarning = _log_warning


def leave_to_file(*names: str) -> None:
    """Show no line below a warning of these loggers on stderr, for a process with a log file.

    Args:
        names: Names of loggers; those below them are meant too.
    """
    below = tuple(f"{name}." for name in names)
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.addFilter(
                lambda record: (
                    record.levelno >= logging.WARNING or not f"{record.name}.".startswith(below)
                )
            )


def is_log_file() -> bool:
    """Return whether stderr is a log file of a run, to which everything belongs."""
    return os.environ.get(STDERR) == "log"


def _is_for_people(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.ERROR:
        return True
    return record.name.partition(".")[0] not in _LIBRARIES and record.name != foreign.name


class _Warnings:
    """Holds what shows the warnings of all other code."""

    others: Any = staticmethod(warnings.showwarning)


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log a warning of a library under its name, without colours; show any other one as before."""
    coloured = _OF_GYMNASIUM.fullmatch(str(message))
    parts = Path(filename).parts
    package = parts[parts.index("site-packages") + 1] if "site-packages" in parts[:-1] else ""
    if coloured:
        level = logging.ERROR if coloured[1] == "ERROR" else logging.WARNING
        logging.getLogger("gymnasium").log(level, "%s", coloured[2])
    elif package in _LIBRARIES:
        logging.getLogger(package).warning("%s: %s", category.__name__, message)
    else:
        _Warnings.others(message, category, filename, lineno, file, line)


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """Take what libraries write below Python while they load and all is well off stderr.

    The lines are logged by `foreign` afterwards. A process of its own reads stderr meanwhile, so
    that the last words of one that crashes are not lost.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no stderr, or no room for another process
            stack.enter_context(_sieved())
        yield


@contextlib.contextmanager
def _sieved() -> Iterator[None]:
    terminal = os.dup(2)
    reader, writer = os.pipe()
    dropped = tempfile.TemporaryFile()  # noqa: SIM115, closed below
    try:
        sieve = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SIEVE, _NOISE],
            stdin=reader, stdout=dropped, stderr=terminal, process_group=0, env={**os.environ},
        )  # fmt: skip
        os.dup2(writer, 2)
        streams.keep(2)
    except BaseException:
        os.close(terminal)
        dropped.close()
        raise
    finally:
        os.close(reader)
        os.close(writer)
    _Stderr.descriptor = terminal
    try:
        yield
    finally:
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(terminal, 2)
        streams.keep(2)  # closes the last end to write to
        _Stderr.descriptor = 2
        os.close(terminal)
        # A process that was started meanwhile may hold the other end.
        with contextlib.suppress(subprocess.TimeoutExpired):
            sieve.wait(_SIEVE_S)
        with dropped:
            dropped.seek(0)
            for line in dropped.read().decode(errors="replace").splitlines():
                foreign.debug("%s", line)
