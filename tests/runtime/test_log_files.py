"""Log files do not grow for ever."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from seedbed.cli import train
from seedbed.config import parse_experiment
from seedbed.launch.supervisor import Supervisor
from seedbed.runtime import log_files
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.log_files import OLD_LOGS, RunLog
from tests.support.waiting import wait_for

BOUND = 10_000
LINE = "a line of the log, which has forty letters"
WRITER = f"while True: print({LINE!r}, flush=True)"


class Writers(Supervisor):
    """One child that writes without an end."""

    name, window_s, too_many, fatal, stop_timeout_s = "writer", 1.0, ExitCode.INTERNAL, (), 9.0

    def start_process(self, index, errors):  # type: ignore[no-untyped-def]
        return subprocess.Popen([sys.executable, "-c", WRITER], stdout=errors, env=dict(os.environ))


def test_the_log_of_a_child_is_rotated_while_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LOG_BYTES", BOUND)
    writers = Writers(1, tmp_path)
    log = writers.log_file(0)
    writers.start()
    try:
        for number in range(OLD_LOGS + 2):
            wait_for(lambda: log.stat().st_size >= BOUND, f"it is full, time {number}")
            writers.poll()
    finally:
        writers.stop()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"writer-0.log", "writer-0.log.1", "writer-0.log.2"}
    # The child goes on at the begin of the emptied file, and not where it was.
    assert b"\0" not in log.read_bytes()
    whole = [line for line in log.read_text().splitlines() if line == LINE]
    assert len(whole) >= len(log.read_text().splitlines()) - 2


def test_the_learners_own_log_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "LOG_BYTES", BOUND)
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    args = parser.parse_args(["x.yaml", "--run-dir", str(tmp_path / "run")])
    args.argv = []
    experiment = parse_experiment("{name: x, environment: {id: CartPole-v1}}", ())
    root, before = logging.getLogger(), list(logging.getLogger().handlers)
    with train.open_run(args, experiment) as run:
        for _ in range(2_000):
            logging.getLogger("test").warning(LINE)
        (handler,) = (handler for handler in root.handlers if handler not in before)
        root.removeHandler(handler)
        handler.close()
        sizes = {path.name: path.stat().st_size for path in run.logs.iterdir()}
    assert sizes.keys() == {"learner.log", "learner.log.1", "learner.log.2"}
    assert max(sizes.values()) <= BOUND
    args.restart = "overwrite"
    with train.open_run(args, experiment) as run:
        assert [path.name for path in run.logs.iterdir()] == ["learner.log"]
        root.removeHandler(root.handlers[-1])


def test_lines_that_a_full_volume_refuses_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them was a traceback on stderr."""
    log = RunLog(Path("/dev/full"))
    for number in range(3):
        log.handle(logging.LogRecord("test", logging.INFO, "", 0, f"line {number}", (), None))
    (told,) = capsys.readouterr().err.splitlines()
    assert "/dev/full" in told
    assert "No space left on device" in told
    file = tmp_path / "log"
    full, log.stream = log.stream, file.open("w")  # there is room again
    with suppress(OSError):
        full.close()
    for number in (3, 4):
        log.handle(logging.LogRecord("test", logging.INFO, "", 0, f"line {number}", (), None))
    log.close()
    assert file.read_text().splitlines() == [
        "line 3",
        "3 lines before this one could not be written",
        "line 4",
    ]
