"""Ctrl-C in a terminal, whatever `seedbed train` does at that moment."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.processes import parent

DEADLINE_S = 90.0
CTRL_C = b"\x03"
STARTED = "python has started"
# The console script `seedbed`, behind a line that is shown once Python runs it.
PROGRAM = f"from seedbed.cli.__main__ import run; print('{STARTED}', end='', flush=True); run()"


class Terminal:
    """A program in a terminal of its own, whose keyboard is the test.

    Args:
        arguments: of `seedbed`.
    """

    def __init__(self, *arguments: str) -> None:
        self.shown = ""
        self.pid, self._keyboard = pty.fork()
        if self.pid == 0:
            # A shell's background job, such as these tests may be, has the signal ignored.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execv(sys.executable, [sys.executable, "-c", PROGRAM, *arguments])
        fcntl.ioctl(self._keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))

    def read_until(self, text: str | None, timeout_s: float = DEADLINE_S) -> bool:
        """Read what is shown until `text`, the end (None), or the time is over."""
        deadline = time.monotonic() + timeout_s
        while text is None or text not in self.shown:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._keyboard], [], [], left)[0]:
                return False
            try:
                self.shown += os.read(self._keyboard, 65536).decode(errors="replace")
            except OSError:  # the program has ended
                return text is None
        return True

    def wait_for_start(self) -> None:
        """Wait until the program is past Python's own start, which no program can make quiet.

        From its first line on `seedbed` has the signal at its default, or handles it itself.
        """
        assert self.read_until(STARTED), self.shown
        self.shown = self.shown.replace(STARTED, "")
        deadline = time.monotonic() + DEADLINE_S
        while catches_ctrl_c(self.pid):
            assert time.monotonic() < deadline, "Python's own handler of Ctrl-C stays"
            time.sleep(0.001)

    def press_ctrl_c(self) -> None:
        os.write(self._keyboard, CTRL_C)

    def end(self) -> int:
        """Wait for the end, and return the exit code as a shell shows it."""
        assert self.read_until(None), f"it does not end: {self.shown}"
        _, status = os.waitpid(self.pid, 0)
        os.close(self._keyboard)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code


def catches_ctrl_c(pid: int) -> bool:
    """Whether a process has a handler of SIGINT."""
    (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


def train(tmp_path: Path) -> Terminal:
    return Terminal(
        "train", "cartpole-vtrace", "--run-dir", str(tmp_path / "run"),
        "--set", "stop={updates: 60}", "--set", "evaluation.episodes=1000000",
        "--set", "logging.interval_s=0.2",
    )  # fmt: skip


def check_quiet(terminal: Terminal, tmp_path: Path) -> None:
    assert "Traceback" not in terminal.shown, terminal.shown
    assert "THREAD_STUCK" not in terminal.shown, terminal.shown
    assert '"env_frames"' not in terminal.shown, "JSON is for programs"
    left = subprocess.run(
        ["pgrep", "-f", str(tmp_path / "run")], capture_output=True, text=True, check=False
    ).stdout.split()
    assert not [pid for pid in left if parent(int(pid))], "processes are left"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("moment", "code"),
    [
        ("seedbed 0", 130),  # the header's first word
        ("loading tensorflow", 130),
        ("compiling the training step", 0),
        ("the last evaluation: ", 0),
    ],
)
def test_ctrl_c_ends_whatever_goes_on(tmp_path: Path, moment: str, code: int) -> None:
    terminal = train(tmp_path)
    assert terminal.read_until(moment), terminal.shown
    terminal.press_ctrl_c()
    ended = terminal.end()
    assert ended in (code, 130), terminal.shown
    check_quiet(terminal, tmp_path)
    if ended == 0:
        assert "next" in terminal.shown
        assert re.search(r"ended by (signal SIGINT|stop\.updates)", terminal.shown)


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(10))
def test_ctrl_c_at_any_moment(tmp_path: Path, moment: int) -> None:
    terminal = train(tmp_path)
    terminal.wait_for_start()
    terminal.read_until(None, timeout_s=moment)
    terminal.press_ctrl_c()
    assert terminal.end() in (0, 130), terminal.shown
    check_quiet(terminal, tmp_path)
