"""`actor_efficiency`: an actor's steps through the wire over the bare vector environment's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.bare_environments import GROUPS
from bench.child import END_S, Child, failed
from bench.figures import ratio, series
from bench.plan import Plan, pong

GOAL, GOAL_AT = 0.90, 32
JOIN_S = 60.0
FIRST_MESSAGES = 10 * GROUPS


def actor_efficiency(plan: Plan) -> dict[str, Any]:
    """For each number of environments a group.

    Both sides step two groups of E with the same number of threads on the same cores; ours has
    the actor's process, the wire, and a learner's process whose policy has no model.
    """
    cases = [_case(plan, environments) for environments in plan.actor_environments]
    at_goal = [case for case in cases if case["environments"] == GOAL_AT] or cases
    return {"cases": cases, "value": at_goal[0]["efficiency"]["median"]}


def _case(plan: Plan, environments: int) -> dict[str, Any]:
    path = plan.folder / f"actor-{environments}.yaml"
    path.write_text(pong(replace(plan, environments=environments)))
    address = f"unix:{plan.folder / f'actor-{environments}.sock'}"
    log = plan.folder / f"actor-{environments}.log"
    window = {"seconds": plan.window_s, "warm_up_s": plan.warm_up_s}
    threads = str(plan.actor_threads)
    with (
        Child(
            "bare_environments",
            plan.folder,
            str(path),
            str(environments),
            threads,
            name=f"bare-environments-{environments}",
        ) as bare,
        Child(
            "null_learner",
            plan.folder,
            str(path),
            address,
            name=f"actors-learner-{environments}",
        ) as learner,
        _actor(path, address, log) as actor,
    ):
        _wait_for(learner, GROUPS * environments, actor, log)
        learner.ask("measure", seconds=0.1, warm_up_s=plan.warm_up_s)  # closes the gate
        turns = [
            (learner.ask("measure", **window), bare.ask("measure", **window))
            for _ in range(plan.runs)
        ]
    ours = [turn["steps"] / turn["seconds"] for turn, _ in turns]
    other = [turn["steps"] / turn["seconds"] for _, turn in turns]
    return {
        "environments": environments,
        "groups": GROUPS,
        "threads_a_group": plan.actor_threads,
        "goal": GOAL if environments == GOAL_AT else None,
        "efficiency": ratio(ours, other),
        "steps_per_s": series(ours),
        "bare_steps_per_s": series(other),
        "learner_cpu_us_a_step": series([1e6 * x["cpu_s"] / x["steps"] for x, _ in turns]),
        "bare_cpu_us_a_step": series([1e6 * y["cpu_s"] / y["steps"] for _, y in turns]),
    }


@contextmanager
def _actor(experiment: Path, address: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`seedbed actor`, as in production."""
    command = [sys.executable, "-m", "seedbed.cli.main", "actor", str(experiment)]
    command += ["--learner", address, "--index", "0"]
    command += ["--exit-with-parent", str(os.getpid())]
    with log.open("ab") as output:
        actor = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=Path(__file__).parents[1],
        )
    try:
        yield actor
        if actor.poll() is not None:
            raise failed(f"the actor ended with exit code {actor.returncode}", log)
    finally:
        actor.terminate()
        try:
            actor.wait(END_S)
        except subprocess.TimeoutExpired:
            actor.kill()
            actor.wait()


def _wait_for(learner: Child, environments: int, actor: subprocess.Popen[bytes], log: Path) -> None:
    """Until both groups play: they join, reset their games, then step."""
    deadline = time.monotonic() + JOIN_S
    while True:
        usage = learner.ask("usage")
        if usage["environments"] == environments and usage["messages"] >= FIRST_MESSAGES:
            return
        if time.monotonic() > deadline:
            raise failed(f"the actor does not play within {JOIN_S:g} s: {usage}", log)
        if actor.poll() is not None:
            raise failed(f"the actor ended with exit code {actor.returncode}", log)
        time.sleep(0.1)
