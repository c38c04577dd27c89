"""What a guarded process leaves behind is ended, whatever ends it, and its end is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.guard import claim_run
from tests.support.processes import parent
from tests.support.waiting import wait_for

GUARDED = """
import atexit, ctypes, multiprocessing, os, signal, subprocess, sys, threading, time
from seedbed.runtime import calls, guard
from seedbed.runtime.guard import leaving, run_guarded

if sys.argv[1] == "thread":
    guard._EXIT_S = 1.0

def daemon():
    "A grandchild in a session of its own, whose parent has ended; some without an environment."
    for words in (["sleep", "1000"], ["env", "-i", "sleep", "1000"]):
        shell = "setsid " + " ".join(words) + " >/dev/null 2>&1 & echo $!"
        print(subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True).stdout.strip())
    print(subprocess.Popen(["sleep", "1000"]).pid)
    print(os.getpid(), flush=True)

def main():
    what = sys.argv[1]
    if what == "os._exit":
        os._exit(0)
    if what == "exec":
        os.execv("/bin/true", ["true"])
    if what == "library":
        ctypes.CDLL(None).exit(0)
    if what == "sys.exit":
        sys.exit(7)
    if what == "reported":
        leaving()
        os._exit(9)
    if what == "thread":
        threading.Thread(target=time.sleep, args=(1000,)).start()
        return 5
    if what == "process":
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,)).start()
        return 5
    if what == "crash":
        atexit.register(ctypes.string_at, 0)
        return 5
    if "in a call" in what:
        calls.PROCESS.watch("Pong", 0)
        calls.PROCESS.record().begin(calls.STEP, 3)
        if "timer" in what:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            time.sleep(1000)
        ctypes.string_at(0)
    if "other code" in what:
        atexit.register(os._exit, 3)
        return 0 if "work is done" in what else 5
    daemon()
    if what == "waits":
        time.sleep(1000)
    return 5

run_guarded(main, is_restarted="actor" in sys.argv[1])
"""
ENDED_S = 10


def gone(pid: int) -> bool:
    return parent(pid) is None


@contextmanager
def guarded(what: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A guard, and the processes below it, the guarded one last."""
    process = subprocess.Popen(
        [sys.executable, "-c", GUARDED, what], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(4)]
    try:
        yield process, pids
    finally:
        for pid in (process.pid, *pids):
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    ("what", "code"),
    [("os._exit", 11), ("exec", 11), ("library", 11), ("sys.exit", 7), ("reported", 9)],
)
def test_an_end_that_other_code_causes_is_named(what: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, what], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code
    assert ("by code that it ran" in done.stderr) == (code == ExitCode.ENVIRONMENT)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("what", ["thread", "process", "crash", "other code"])
def test_other_code_neither_holds_up_the_end_nor_changes_the_code(what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, what], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 5


def test_other_code_does_not_turn_work_that_is_done_into_a_failure() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED, "other code, work is done"], timeout=60)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("what", "name", "code"),
    [
        ("crash in a call", "SIGSEGV", ExitCode.ENVIRONMENT),
        ("timer in a call", "SIGALRM", ExitCode.ENVIRONMENT),
        ("crash in a call of an actor", "SIGSEGV", -signal.SIGSEGV),  # its supervisor restarts it
    ],
)
def test_a_signal_that_ends_a_call_is_named_with_the_call(what: str, name: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, what], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code
    assert f"ended by {name} during step of environment 3 of Pong" in done.stderr


def test_nothing_is_left_when_the_process_returns() -> None:
    with guarded("returns") as (process, pids):
        assert process.wait(ENDED_S) == 5
        assert all(map(gone, pids))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_nothing_is_left_when_the_process_is_killed(number: signal.Signals) -> None:
    with guarded("waits") as (process, pids):
        os.kill(pids[-1], number)
        assert process.wait(ENDED_S) == -number
        assert all(map(gone, pids))


def test_a_signal_to_the_guard_reaches_the_process_once_and_ends_all() -> None:
    with guarded("waits") as (process, pids):
        process.terminate()
        assert process.wait(ENDED_S) == -signal.SIGTERM
        assert all(map(gone, pids))


def test_a_guard_that_was_stopped_passes_nothing_on() -> None:
    """As a laptop that sleeps, or a container that is paused, for longer than the guard waits."""
    with guarded("waits") as (process, pids):
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.3)
        process.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        assert not gone(pids[-1])
        process.terminate()
        assert process.wait(ENDED_S) == -signal.SIGTERM
        assert all(map(gone, pids))


OUTER = """
import os, subprocess, sys, time
from seedbed.runtime.guard import run_guarded

def main():
    inner = subprocess.Popen([sys.executable, "-c", sys.argv[1], "waits"])
    print(inner.pid, flush=True)
    time.sleep(1000)
    return 0

run_guarded(main)
"""


def test_a_killed_guard_leaves_nothing_to_the_next_one_above(tmp_path: Path) -> None:
    """The inner guard is killed: its process dies with it, and the outer guard ends the daemons."""
    process = subprocess.Popen(
        [sys.executable, "-c", OUTER, GUARDED], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    inner, *pids = (int(process.stdout.readline()) for _ in range(5))
    try:
        os.kill(inner, signal.SIGKILL)
        # One that has dropped its environment is ended with the outer guard's own process.
        with_environment = [pids[0], *pids[2:]]
        wait_for(lambda: all(map(gone, with_environment)), "all are gone", ENDED_S)
        assert process.poll() is None
        process.terminate()
        process.wait(ENDED_S)
        wait_for(lambda: all(map(gone, pids)), "all are gone", ENDED_S)
    finally:
        for pid in (process.pid, inner, *pids):
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def test_the_next_command_of_a_run_ends_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of ours are killed at once. A command in the directory of another run ends nothing."""
    monkeypatch.setenv("SEEDBED_RUN_DIR", str(tmp_path / "run"))
    with guarded("waits") as (process, pids):
        daemon, main = pids[0], pids[-1]
        os.kill(process.pid, signal.SIGKILL)  # the kernel kills the guarded process with it
        wait_for(lambda: gone(main), "the process is gone", ENDED_S)
        claim_run(tmp_path / "run-2")
        assert not gone(daemon)
        claim_run(tmp_path / "run")
        wait_for(lambda: gone(daemon), "the daemon is gone", ENDED_S)
