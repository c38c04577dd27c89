"""Lines on stderr: JSON for a cloud, short on a terminal, without the noise of libraries."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys

import pytest

from seedbed.runtime import terminal


def test_each_line_is_an_object_for_a_cloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEEDBED_LOG_FORMAT", "json")
    formatter = terminal.log_formatter()
    try:
        raise ValueError("why")
    except ValueError:
        record = logging.LogRecord("x.y", logging.WARNING, "f", 1, "at %d", (3,), sys.exc_info())
    line = json.loads(formatter.format(record))
    assert (line["severity"], line["message"], line["logger"]) == ("WARNING", "at 3", "x.y")
    assert line["time"].endswith("+00:00")
    assert "ValueError: why" in line["exception"]
    terminal.print_lines("two\nlines", "ERROR")
    (only,) = capsys.readouterr().err.splitlines()
    assert json.loads(only)["message"] == "two\nlines"


def test_a_whole_failing_command_writes_objects_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "status", "/no/such/run"],
        env={**os.environ, "SEEDBED_LOG_FORMAT": "json"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[-1]["severity"] == "ERROR"
    assert "exit code 2" in lines[-1]["message"]


NOISE = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1.2 3 port.cc:153] oneDNN custom operations are on.\n"
)


def test_a_terminal_is_spared_what_means_nothing_and_shown_the_rest() -> None:
    code = (
        "import os\n"
        "from seedbed.runtime.terminal import spared\n"
        "with spared():\n"
        f"    os.write(2, {NOISE!r}.encode())\n"
        "    os.write(2, b'E0000 an error\\n')\n"
        "os.write(2, b'end\\n')\n"
    )
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    os.close(theirs)
    shown = b""
    while not shown.endswith(b"end\r\n"):
        shown += os.read(ours, 1000)
    os.close(ours)
    assert shown.split(b"\r\n")[:-1] == [b"E0000 an error", b"end"]
    piped = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    assert piped.stderr.startswith(NOISE), "a log file gets everything"
