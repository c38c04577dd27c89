"""Lines on stderr: JSON for a cloud, short on a terminal, without the noise of libraries."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from seedbed.runtime import terminal
from seedbed.telemetry.progress_line import ProgressLine


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
    assert datetime.fromisoformat(line["time"]).tzinfo is not None
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
    "I0000 00:00:1795669822.337901   15666 port.cc:153] oneDNN custom operations are on.\n"
    "2026-11-26 05:10:45.870123: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary\n"
    "E0000 00:00:1.2 3 cuda_fft.cc:485] Unable to register cuFFT factory: Attempting to register\n"
)
LOADING = f"""
import logging, os, sys, warnings
from seedbed.runtime.terminal import log_to_stderr, spared
log_to_stderr()
if len(sys.argv) > 1:
    logging.getLogger().addHandler(logging.FileHandler(sys.argv[1]))
with spared():
    os.write(2, {NOISE!r}.encode())
    os.write(2, b'E0000 00:00:1.2 3 gpu.cc:4] out of memory\\n')
logging.getLogger("jax._src.xla_bridge").info("no tpu")
logging.getLogger("jax._src.dispatch").error("XLA failed")
warnings.warn("\\x1b[33mWARN: the environment is out of date\\x1b[0m")
warnings.warn("of my own")
os.write(2, b'end\\n')
"""


def shown_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if not line.startswith("  warnings.warn(")]


def test_a_terminal_is_spared_what_means_nothing_and_shown_the_rest() -> None:
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", LOADING], stderr=theirs, check=True)
    os.close(theirs)
    shown = b""
    while not shown.endswith(b"end\r\n"):
        shown += os.read(ours, 1000)
    os.close(ours)
    first, xla, warning, last = shown.split(b"\r\n")[:-1]
    assert first == b"E0000 00:00:1.2 3 gpu.cc:4] out of memory"
    assert xla.endswith(b"ERROR: XLA failed")
    assert warning.endswith(b"UserWarning: of my own")
    assert last == b"end"


def test_a_file_is_spared_too_and_the_log_file_has_it(tmp_path: Path) -> None:
    log = tmp_path / "learner.log"
    command = [sys.executable, "-c", LOADING, str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, xla, warning, last = shown_of(done)
    assert first == "E0000 00:00:1.2 3 gpu.cc:4] out of memory"
    assert xla.endswith(" E jax._src.dispatch: XLA failed")
    assert warning.endswith("UserWarning: of my own")
    assert last == "end"
    *kept, tpu, error, gymnasium = log.read_text().splitlines()
    assert kept == NOISE.splitlines()
    assert (tpu, error) == ("no tpu", "XLA failed")
    assert gymnasium == "the environment is out of date"


def test_a_process_whose_stderr_is_a_log_file_writes_everything_there() -> None:
    environment = {**os.environ, terminal.STDERR: "log"}
    command = [sys.executable, "-c", LOADING]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    for line in NOISE.splitlines():
        assert f" D seedbed.libraries: {line}\n" in done.stderr  # by the clock of the log
    assert "no tpu" in done.stderr
    assert "the environment is out of date" in done.stderr


def test_the_last_words_of_a_library_that_crashes_are_shown() -> None:
    code = (
        "import os\n"
        "from seedbed.runtime.terminal import spared\n"
        "with spared():\n"
        f"    os.write(2, {NOISE!r}.encode() + b'F0000 this CPU lacks AVX')\n"
        "    os.abort()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == b"F0000 this CPU lacks AVX"


def test_a_line_that_is_refreshed_in_place_is_shown_at_once() -> None:
    code = (
        "import os\n"
        "from seedbed.runtime.terminal import spared\n"
        "with spared():\n"
        "    os.write(2, b'\\r\\x1b[Kreturn -')\n"
        "    os.read(0, 1)\n"
        f"    os.write(2, {NOISE!r}.encode())\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        shown = b""
        while len(shown) < 12:
            shown += os.read(process.stderr.fileno(), 100)
        process.stdin.write(b"x")
        process.stdin.close()
        assert shown + process.stderr.read() == b"\r\x1b[Kreturn -"
        assert process.wait() == 0


def test_all_time_stamps_of_a_log_have_one_form_and_a_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        record = logging.LogRecord("x.y", logging.INFO, "f", 1, "text", (), None)
        out = io.StringIO()
        line = ProgressLine(out, lambda: 100.0)
        line.show(["return 5"])
        stamps = [terminal.file_formatter().format(record).split()[0], out.getvalue().split()[0]]
        stamps.append(json.loads(terminal._json("text", "INFO"))["time"])
    finally:
        monkeypatch.undo()
        time.tzset()
    for stamp in stamps:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+05:30", stamp), stamp
