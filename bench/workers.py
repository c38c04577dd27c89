"""`workers`: steps of a group in worker processes, beside Gymnasium's, one process a game."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv
from numpy.typing import NDArray

from bench.figures import series_of
from bench.plan import Plan
from bench.slow_environments import EXACT_PONG, STEP_S, ExactPong, HoldsTheLock, Sleeps
from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env

WORKERS = (0, 1, 2, 4)
KINDS: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    f"waits {STEP_S * 1e3:g} ms": ({"id": "bench.slow_environments:Sleeps"}, Sleeps),
    f"{STEP_S * 1e3:g} ms of Python": (
        {"id": "bench.slow_environments:HoldsTheLock"},
        HoldsTheLock,
    ),
    "Pong, exact": (EXACT_PONG, ExactPong),
}
Stepper = Callable[[NDArray[np.int32]], object]


def workers(plan: Plan) -> dict[str, Any]:
    """Measure each kind of environment with each number of workers, in turn."""
    return {
        "environments": plan.worker_environments,
        "cases": [
            {"environment": name, **_case(plan, tree, single)}
            for name, (tree, single) in KINDS.items()
        ],
    }


def _case(plan: Plan, tree: dict[str, Any], single: Callable[[], Any]) -> dict[str, Any]:
    e = plan.worker_environments
    environment = Environment.model_validate(tree)
    with ExitStack() as stack:
        steppers: dict[str, tuple[Stepper, int]] = {}
        for count in WORKERS:
            env = make_vector_env(environment, e, 1, range(e), workers=count)
            stack.callback(env.close)
            env.reset()
            steppers[f"workers_{count}"] = (env.step, env.spec.actions)
        # Spawned: this process has threads of gRPC.
        theirs = AsyncVectorEnv([single] * e, context="spawn")
        stack.callback(theirs.close)
        theirs.reset(seed=0)
        steppers["gymnasium"] = (theirs.step, env.spec.actions)
        turns = [
            {
                key: figure
                for name, stepper in steppers.items()
                for key, figure in _turn(plan, name, *stepper, e).items()
            }
            for _ in range(plan.runs)
        ]
    return series_of(turns)


def _turn(plan: Plan, name: str, step: Stepper, actions: int, num_envs: int) -> dict[str, float]:
    """Return the environment steps of a second, and the CPU time of one."""
    chosen = np.random.default_rng(0).integers(0, actions, (97, num_envs), np.int32)
    ended = time.perf_counter() + plan.warm_up_s
    done = 0
    while time.perf_counter() < ended:
        step(chosen[done % 97])
        done += 1
    started, cpu_s, done = time.perf_counter(), _cpu_s(), 0
    while (passed_s := time.perf_counter() - started) < plan.window_s:
        step(chosen[done % 97])
        done += 1
    steps = done * num_envs
    return {name: steps / passed_s, f"{name}_cpu_us": 1e6 * (_cpu_s() - cpu_s) / steps}


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of all its children, of which one side's work."""
    pids = [os.getpid()]
    for task in Path("/proc/self/task").iterdir():
        pids += map(int, (task / "children").read_text().split())
    ticks = 0
    for pid in pids:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")
