"""The `seedbed` command as a shell sees it."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as after `| head`
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "config", "schema"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_command_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", "trian"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "train" in done.stderr
