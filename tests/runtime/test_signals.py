"""Signals, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

ENDS = "exit_on_sigterm()"
ASKS = "on_stop_signals(lambda name: print(name, flush=True))"

TOGETHER = "from seedbed.runtime import signals; signals._TOGETHER_S = {}"


def started(*statements: str) -> subprocess.Popen[str]:
    """A process that has run the statements and sleeps."""
    code = [
        "import time",
        "from seedbed.runtime.signals import Terminated, exit_on_sigterm, on_stop_signals",
        "try:",
        *(f"    {statement}" for statement in statements),
        "    print('ready', flush=True)",
        "    while True: time.sleep(0.05)",
        "except Terminated:",
        "    raise SystemExit(143)",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(code)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_handlers_of_other_code_do_not_stay() -> None:
    """An environment that ignores signals cannot keep its process from being stopped."""
    other = "\n".join(
        [
            "import gymnasium, signal",
            "def make(**options):",
            "    signal.signal(signal.SIGTERM, signal.SIG_IGN)",
            "    return gymnasium.make('CartPole-v1')",
        ]
    )
    process = started(
        *("import sys, types", "sys.modules['loud'] = types.ModuleType('loud')"),
        f"exec({other!r}, sys.modules['loud'].__dict__)",
        *("from seedbed.config.environment import Environment", ASKS),
        "from seedbed.envs.factory import make_environment",
        "make_environment(Environment(id='loud:make'))",
    )
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "SIGTERM\n"
    process.kill()
    process.wait()


def test_sigterm_ends_what_has_not_begun_by_a_handler_of_its_own() -> None:
    """The first process of a container gets no signal that it leaves to the default."""
    process = started(ENDS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM, "the default would be -15"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_one_ends(number: signal.Signals) -> None:
    process = started(ENDS, TOGETHER.format(0), ASKS)
    assert process.stdout is not None
    process.send_signal(number)
    assert process.stdout.readline() == f"{number.name}\n"
    process.send_signal(number)
    assert process.wait(20) == 128 + number


def test_a_second_signal_with_the_first_one_is_of_the_same_request() -> None:
    """GNU timeout signals its child, and then the group."""
    twice = ["import os, signal", *["os.kill(os.getpid(), signal.SIGTERM)"] * 2, "print('on')"]
    process = started(ENDS, TOGETHER.format(3600), ASKS, "print('ready', flush=True)", *twice)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["SIGTERM\n", "on\n"]
    process.kill()
    process.wait(20)


def test_a_watched_process_is_not_ended_by_the_same_signal_twice() -> None:
    """Both the terminal's process group and the parent send it one."""
    process = started(ASKS.removesuffix(")") + ", exit_on_second_signal=False)")
    assert process.stdout is not None
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "SIGTERM\n"
    assert process.poll() is None
    process.kill()
    process.wait(20)
