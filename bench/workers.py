"""`workers`: steps of a group in worker processes, beside Gymnasium's, one process a game."""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv
from numpy.typing import NDArray

from bench.child import tree
from bench.figures import in_turn
from bench.plan import Plan
from bench.report import Table
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
_HEAD = "environment | in the actor | 1 worker | 2 workers | 4 workers | AsyncVectorEnv"
TABLES = [
    Table(
        "steps/s of {environments} environments, beside Gymnasium's AsyncVectorEnv with a process "
        "for each",
        _HEAD,
        "{environment} | {workers_0:,.0f} | {workers_1:,.0f} | {workers_2:,.0f} | "
        "{workers_4:,.0f} | {gymnasium:,.0f}",
    ),
    Table(
        "CPU time of a step of one environment, all processes: µs",
        _HEAD,
        "{environment} | {workers_0_cpu_us:,.0f} | {workers_1_cpu_us:,.0f} | "
        "{workers_2_cpu_us:,.0f} | {workers_4_cpu_us:,.0f} | {gymnasium_cpu_us:,.0f}",
    ),
]


def workers(plan: Plan) -> dict[str, Any]:
    """Measure each kind of environment with each number of workers, in turn."""
    environments = plan.pick(8, 4)
    return {
        "environments": environments,
        "cases": [
            {"environment": name, **_case(plan, environments, tree, single)}
            for name, (tree, single) in KINDS.items()
        ],
    }


def _case(plan: Plan, e: int, tree: dict[str, Any], single: Callable[[], Any]) -> dict[str, Any]:
    environment = Environment.model_validate(tree)
    with ExitStack() as stack:
        sides: dict[str, Any] = {}
        for count in WORKERS:
            env = make_vector_env(environment, e, 1, range(e), workers=count)
            stack.callback(env.close)
            env.reset()
            chosen = np.random.default_rng(0).integers(0, env.spec.actions, (97, e), np.int32)
            sides[f"workers_{count}"] = partial(_steps, plan, env.step, chosen)
        # Spawned: this process has threads of gRPC.
        theirs = AsyncVectorEnv([single] * e, context="spawn")
        stack.callback(theirs.close)
        theirs.reset(seed=0)
        sides["gymnasium"] = partial(_steps, plan, theirs.step, chosen)
        return in_turn(plan.runs, sides)


def _steps(
    plan: Plan, step: Callable[[NDArray[np.int32]], object], chosen: NDArray[np.int32]
) -> dict[str, float]:
    """Return the environment steps of a second, and the CPU time of one."""

    def play(seconds: float) -> tuple[int, float]:
        started, done = time.perf_counter(), 0
        while (passed_s := time.perf_counter() - started) < seconds:
            step(chosen[done % len(chosen)])
            done += 1
        return done * chosen.shape[1], passed_s

    play(plan.warm_up_s)
    cpu_s = _cpu_s()
    steps, passed_s = play(plan.window_s)
    return {"": steps / passed_s, "_cpu_us": 1e6 * (_cpu_s() - cpu_s) / steps}


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of all its children, of which one side's work."""
    ticks = 0
    for pid in tree(os.getpid()):
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")
