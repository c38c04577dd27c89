"""`actor_efficiency`: an actor's steps through the wire over the bare vector environment's."""

import os
import time
from typing import Any

from bench.bare_environments import GROUPS
from bench.child import Child
from bench.command import Command
from bench.figures import series_of
from bench.plan import Plan, write_pong

GOAL, GOAL_AT = 0.90, 32
JOIN_S = 60.0
FIRST_MESSAGES = 10 * GROUPS


def actor_efficiency(plan: Plan) -> dict[str, Any]:
    """Measure each number of environments a group.

    Both sides step two groups of E with the same number of threads on the same cores; ours has
    the actor's process, the wire, and a learner's process whose policy has no model.
    """
    cases = [_case(plan, environments) for environments in plan.actor_environments]
    at_goal = [case for case in cases if case["environments"] == GOAL_AT] or cases
    return {"cases": cases, "value": at_goal[0]["efficiency"]["median"]}


def _case(plan: Plan, environments: int) -> dict[str, Any]:
    path = write_pong(plan, f"actor-{environments}", environments)
    address = f"unix:{plan.folder / f'actor-{environments}.sock'}"
    threads = plan.actor_threads
    with (
        Child(
            "bare_environments:Bare", plan.folder, f"bare-environments-{environments}",
            experiment=path, num_envs=environments, threads=threads,
        ) as bare,
        Child(
            "null_learner:NullLearner", plan.folder, f"actors-learner-{environments}",
            path=path, listen=address,
        ) as learner,
        Command(
            plan.folder / f"actor-{environments}.log",
            *("actor", path, "--learner", address, "--index", "0"),
            *("--exit-with-parent", str(os.getpid())),
        ) as actor,
    ):  # fmt: skip
        _wait_for(learner, GROUPS * environments, actor)
        learner.ask("measure", seconds=0.1, warm_up_s=plan.warm_up_s)  # closes the gate
        turns = [_turn(plan, learner, bare) for _ in range(plan.runs)]
        actor.check()
    return {
        "environments": environments,
        "groups": GROUPS,
        "threads_a_group": threads,
        "goal": GOAL if environments == GOAL_AT else None,
        **series_of(turns),
    }


def _turn(plan: Plan, learner: Child, bare: Child) -> dict[str, float]:
    ours, other = (
        child.ask("measure", seconds=plan.window_s, warm_up_s=plan.warm_up_s)
        for child in (learner, bare)
    )
    rate, bare_rate = (side["steps"] / side["seconds"] for side in (ours, other))
    return {
        "efficiency": rate / bare_rate,
        "steps_per_s": rate,
        "bare_steps_per_s": bare_rate,
        "learner_cpu_us_a_step": 1e6 * ours["cpu_s"] / ours["steps"],
        "bare_cpu_us_a_step": 1e6 * other["cpu_s"] / other["steps"],
    }


def _wait_for(learner: Child, environments: int, actor: Command) -> None:
    """Wait until both groups play: they join, reset their games, then step."""
    deadline = time.monotonic() + JOIN_S
    while True:
        usage = learner.ask("usage")
        if usage["environments"] == environments and usage["messages"] >= FIRST_MESSAGES:
            return
        if time.monotonic() > deadline:
            raise actor.failed(f"does not play within {JOIN_S:g} s: {usage}")
        actor.check()
        time.sleep(0.1)
