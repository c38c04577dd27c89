"""Groups of worker processes: the rows of one process, and what a worker's end costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import TimeStep, VectorEnv
from tests.support.named_memory import named_memory
from tests.support.processes import START_S, children, guarded, parent, python_path
from tests.support.waiting import wait_for

E = 5
COUNTER = {
    "id": "tests.support.toy_environments:Counter",
    "kwargs": {"length": 2, "lives": True},
}
BREAKOUT = {
    "id": "atari:Breakout",
    "atari": {"preprocessing": "exact", "max_frames_per_episode": 80, "noop_max": 8},
}


def make(tree: dict[str, Any], environments: int = E, workers: int = 2, **more: Any) -> VectorEnv:
    environment = Environment.model_validate(tree)
    seeds = range(environments)
    return make_vector_env(environment, environments, 1, seeds, workers=workers, **more)


def play(env: VectorEnv) -> list[TimeStep]:
    """Two incarnations, with a restart of two environments in each."""
    random, rows = np.random.default_rng(0), []
    for env.incarnation in (0, 7000):
        rows.append(env.reset())
        for step in range(30):
            rows.append(env.step(random.integers(0, env.spec.actions, E).astype(np.int32)))
            if step == 10:
                live = ~(rows[-1].terminated | rows[-1].truncated | rows[-1].first)
                env.restart(rows[-1], live & np.array([True, False, True, False, True]))
    env.close()
    return rows


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("tree", [COUNTER, BREAKOUT], ids=["counter", "breakout"])
def test_the_rows_are_those_of_one_process_bit_for_bit(tree: dict[str, Any]) -> None:
    rows = play(make(tree))
    for ours, theirs in zip(rows, play(make(tree, workers=0)), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()
    assert any(row.truncated.any() for row in rows)
    assert any((row.first & (k % 31 > 0)).any() for k, row in enumerate(rows))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def zeros() -> Any:
    return np.zeros(4, np.int32)


def test_trouble_costs_its_own_episodes_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of environments 0 and 1 in one worker, 2 and 3 in the other one."""
    troubled = {
        "id": "tests.support.faulty_environments:Troubled",
        "kwargs": {"folder": str(tmp_path)},
    }
    before = descriptors()
    env = make(troubled, 4, timeout_s=3, max_failures=100)
    expected: dict[str, int] = {}
    for trouble, cause, cut in [
        ("raise", "step_raised", [2]),
        ("nan", "not_finite", [2]),
        ("shape", "wrong_shape", [2]),
        ("be killed", "worker_died", [2, 3]),
        ("leave an heir", "worker_died", [2, 3]),
        ("hang", "hung", [2, 3]),
    ]:
        env.reset()
        for _ in range(2):
            env.step(zeros())
        (tmp_path / "2").write_text(trouble)
        row = env.step(zeros())
        expected[cause] = expected.get(cause, 0) + 1
        assert env.failures == expected, trouble
        assert np.flatnonzero(row.first).tolist() == cut, trouble
        t = np.where(row.first, 0, 0.3).astype(np.float32)
        np.testing.assert_array_equal(row.observation[:, 0], t)
        np.testing.assert_array_equal(row.reward, np.where(row.first, 0, 1))
        assert not (row.terminated | row.truncated).any()
        # The group plays on in lock step, and what is new has another seed.
        (tmp_path / "2").write_text("raise")
        for k in range(4, 11):
            row = env.step(zeros())
            assert not row.first.any()
            np.testing.assert_array_equal(
                row.terminated, [(k == 10) and i not in cut for i in range(4)]
            )
        assert env.failures == expected, trouble
        (tmp_path / "2").unlink()
    said = caplog.text
    assert "worker 1 (environments 2 to 3 of" in said
    step = "step of environment 2 of tests.support.faulty_environments:Troubled"
    assert f"exit code 11, in the {step} (worker_died, " in said
    assert f"signal SIGKILL: killed, or out of memory, in the {step}" in said
    assert f"was ended: {step} has not come back for 3." in said
    assert "(actor.environment_timeout_s is 3)" in said
    # What the environments do is said where it happens.
    assert "environment 2 of" in (worker_said := capfd.readouterr().err)
    assert "OSError: the simulator crashed" in worker_said
    assert "ended with exit code 7 by code that it ran" in worker_said
    # A worker that dies between two steps.
    workers = children(os.getpid())
    env.step(zeros())
    env.step(zeros())
    below = guarded(guard := max(workers))
    assert below != guard
    os.kill(guard, signal.SIGKILL)
    wait_for(lambda: not parent(below), "it is dead", START_S)
    assert env.step(zeros()).first.tolist() in (
        [True, True, False, False],
        [False, False, True, True],
    )
    for worker in map(guarded, children(os.getpid())):
        loaded = Path(f"/proc/{worker}/maps").read_text()
        assert "numpy" in loaded
        assert not [name for name in ("cygrpc", "tensorflow", "jaxlib") if name in loaded]
    env.close()
    assert not [worker for worker in workers if parent(worker)]
    assert descriptors() == before


def test_too_many_failures_of_all_workers_together_end_the_group(tmp_path: Path) -> None:
    env = make(
        {"id": "tests.support.faulty_environments:Troubled", "kwargs": {"folder": str(tmp_path)}},
        4,
        max_failures=3,
    )
    env.reset()
    for i in range(3):
        (tmp_path / str(i)).write_text("raise")
    with pytest.raises(
        SeedbedError, match=r"3 failures .*\(limit 3\); .* the simulator crashed"
    ) as ended:
        env.step(zeros())
    assert ended.value.code == ExitCode.ENVIRONMENT
    env.close()


def test_what_cannot_be_made_is_refused_as_in_one_process() -> None:
    tree = {"id": "tests.support.toy_environments:Counter", "kwargs": {"colour": "red"}}
    said = []
    for workers in (0, 2):
        with pytest.raises(SeedbedError) as refused:
            make(tree, workers=workers)
        assert refused.value.code == ExitCode.ENVIRONMENT
        said.append(str(refused.value))
    assert said[0] == said[1]
    assert not children(os.getpid())


def test_ctrl_c_is_the_parents_and_its_death_is_the_workers(tmp_path: Path) -> None:
    """Even that of a worker whose environment does not come back."""
    program = (
        "import numpy as np, sys\n"
        "from seedbed.config.environment import Environment\n"
        "from seedbed.envs import make_vector_env\n"
        "troubled = Environment(id='tests.support.faulty_environments:Troubled',\n"
        "                       kwargs={'folder': sys.argv[1]})\n"
        "env = make_vector_env(troubled, 2, 1, [0, 1], workers=2)\n"
        "env.reset()\n"
        "while True:\n"
        "    try:\n"
        "        env.step(np.zeros(2, np.int32))\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', flush=True)\n"
        "        break\n"
        "env.reset()\n"
        "env.step(np.zeros(2, np.int32))\n"
    )
    (tmp_path / "1").write_text("hang")
    shared = named_memory()
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout
    try:
        wait_for(lambda: not (tmp_path / "1").exists(), "a worker hangs", START_S)
        workers = children(process.pid)
        assert len(workers) == 2
        # A worker that still starts would print a traceback.
        assert [os.getpgid(worker) for worker in sorted(workers)] == sorted(workers)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
    finally:
        process.kill()
    wait_for(lambda: not [worker for worker in workers if parent(worker)], "no orphans", 30)
    _, errors = process.communicate()
    assert errors == ""
    assert named_memory() <= shared
