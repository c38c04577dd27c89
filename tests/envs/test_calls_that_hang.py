"""Calls that do not return: named while they last, and ended by one limit, wherever they are."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.config import parse_experiment
from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env, watchdog
from seedbed.envs.probe import EnvironmentProbe
from seedbed.launch.actors import LocalActors
from seedbed.runs.directory import open_run_directory
from seedbed.runtime import calls
from seedbed.runtime.calls import WAITING, Call, CallRecord, ProcessCalls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from tests.support.waiting import DEADLINE_S, wait_for

ID = "tests.support.brought_environments:HangsIn"
ROOT = Path(__file__).parents[2]


def hanging(call: str, **kwargs: Any) -> Environment:
    return Environment(id=ID, kwargs={"call": call, **kwargs})


class Ended(Exception):
    """The watchdog has ended the process."""


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("call", ["construction", "reset", "step"])
def test_a_call_is_named_and_then_ended_with_the_process(
    call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calls, "NOTICE_S", 0.3)
    said, ended = list[str](), threading.Event()

    def on_late(text: str, late: Call) -> ExitCode:
        said.append(text)
        ended.set()
        raise Ended  # ends the watchdog's thread, in place of the process

    monkeypatch.setattr(watchdog, "on_late", on_late)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def run() -> None:
        env = make_vector_env(hanging(call), 2, 1, [0, 1], timeout_s=1.0)
        env.reset()
        env.step(np.zeros(2, np.int32))

    threading.Thread(target=run, daemon=True).start()
    assert ended.wait(DEADLINE_S)
    name = f"{call} of environment 0 of {ID}"
    assert said[0].startswith(f"{name} has not come back for 1.")
    assert "(actor.environment_timeout_s is 1): raise it" in said[0]
    assert f" s for {name}" in WAITING.text
    assert f" s for {name}" in caplog.text
    WAITING._texts.clear()
    WAITING._told = ""


def test_a_call_that_returns_is_not_waited_for_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "NOTICE_S", 0.0)
    record, heard = CallRecord(), list[str]()
    monkeypatch.setattr(WAITING, "listener", heard.append)
    watch = watchdog.Watchdog("it", 1.0, record)
    record.begin(calls.STEP, 7)
    wait_for(lambda: heard, "it is told")
    assert heard[0] == "waiting 0 s for step of environment 7 of it"
    record.end()
    wait_for(lambda: heard[-1] == "", "it is over")
    watch.close()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("call", ["construction", "step"])
def test_a_worker_is_ended_for_a_call_and_named(
    call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(calls, "NOTICE_S", 0.2)
    said = list[str]()
    monkeypatch.setattr(WAITING, "listener", said.append)
    made = list[Any]()

    def run() -> None:
        made.append(make_vector_env(hanging(call), 1, 1, [0], 1, workers=1, timeout_s=2.0))
        made[0].reset()
        made[0].step(np.zeros(1, np.int32))

    with pytest.raises(SeedbedError, match=f"{call} of environment 0 of {ID} has not come") as over:
        run()
    assert over.value.code == ExitCode.ENVIRONMENT
    assert "actor.environment_timeout_s is 2" in str(over.value)
    assert any(f" s for {call} of environment 0 of {ID}" in text for text in said)
    for env in made:
        env.close()
    assert WAITING.text == ""


@pytest.mark.slow
def test_the_probe_ends_in_time_and_says_of_what() -> None:
    probe = EnvironmentProbe(hanging("reset"), timeout_s=4.0)
    assert probe.wait() is None
    assert probe.refused
    assert f"reset of environment 0 of {ID} has not come back for " in probe.failure


@pytest.mark.slow
def test_check_env_warns_of_a_close_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor does not wait for it, so the process ends with 0."""
    program = (
        "import sys\n"
        "from seedbed.cli.main import main\n"
        f"sys.exit(main(['check', 'env', '{ID}', '--num-envs', '1', '--seconds', '0.01',\n"
        "    '--timeout', '2', '--set', 'environment.kwargs.call=close']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.count("close of environment 0 of") == 1
    assert "ok       rows " in done.stderr  # the rest has been tried
    assert "FAILED" not in done.stderr
    assert done.returncode == ExitCode.OK, done.stderr


@pytest.fixture
def actors(tmp_path: Path) -> Any:
    """The supervisor of one actor, which is not started."""
    experiment = parse_experiment(
        "name: hangs\nenvironment: {id: CartPole-v1}\n"
        "actor: {groups: 2, envs_per_group: 2, environment_timeout_s: 100}"
    )
    with open_run_directory(tmp_path / "run", experiment) as run:
        yield LocalActors(experiment, run, "unix:x", Threads(), 3, lambda: 0)


def test_the_live_line_names_the_actor(actors: LocalActors) -> None:
    memory = calls.shared_memory()
    actors._calls[0], theirs = ProcessCalls(memory), ProcessCalls(memory)
    os.close(memory)
    assert actors.waiting() == ""
    record, other = theirs.record(), theirs.record()
    other.begin(calls.RESET, 3)
    assert actors.waiting() == ""  # it is not long
    other.copy(Call(calls.RESET, 3, time.monotonic() - 12))
    record.begin(calls.STEP, 0)
    assert actors.waiting() == "waiting 12 s for reset of environment 3 of CartPole-v1 (actor 3)"


def test_records_of_closed_environments_are_used_again() -> None:
    process = ProcessCalls()
    first = process.record()
    more = [process.record() for _ in range(200)]  # those that find no room are its own
    process.release(first)
    process.release(first)
    assert process.record() is first
    assert process.record() is not first
    more[0].begin(calls.STEP, 7)
    assert process.longest is not None
    assert process.longest.environment == 7


def test_time_in_which_the_process_is_stopped_is_no_time_of_a_call() -> None:
    process = ProcessCalls()
    process.record().copy(Call(calls.STEP, 0, time.monotonic() - 100))
    process.put_off(90.0)
    assert process.longest is not None
    assert 10 <= process.longest.busy_s < 50


HOLDS_THE_LOCK = """
import ctypes
import gymnasium

class Holds(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 3:  # not in the probe
            ctypes.PyDLL(None).sleep(600)
        return self.observation_space.sample(), 0.0, False, False, {}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            ["check", "env", "holds:Holds", "--num-envs", "1", "--timeout", "1"], id="check"
        ),
        pytest.param(
            [
                *("train", "cartpole-vtrace", "--set", "environment.id=holds:Holds"),
                *("--set", "actor.environment_timeout_s=1", "--set", "actor.processes=1"),
            ],
            id="actor",
        ),
    ],
)
def test_a_call_that_holds_the_interpreter_lock_is_named_and_ended(
    command: list[str], tmp_path: Path
) -> None:
    (tmp_path / "holds.py").write_text(HOLDS_THE_LOCK)
    done = subprocess.run(
        [sys.executable, "-m", "seedbed.cli.main", *command],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=240,
    )  # fmt: skip
    assert done.returncode == ExitCode.ENVIRONMENT, done.stderr
    assert "of environment 0 of holds:Holds has not come back for" in done.stderr
    assert "(actor.environment_timeout_s is 1)" in done.stderr
