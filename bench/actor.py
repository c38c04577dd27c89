"""`actor_efficiency`: an actor's steps through the wire over the bare vector environment's."""

import os
import time
from typing import Any

from bench.bare_environments import GROUPS
from bench.child import Child
from bench.command import Command
from bench.figures import in_turn
from bench.plan import Plan, write_pong
from bench.report import Table
from bench.sides import address_of, null_learner

# By transport and environments a group.
GOALS = {"shared memory": {1: 0.6, 8: 0.9, 32: 0.95}, "tcp": {1: 0.4, 8: 0.78, 32: 0.88}}
GOAL_AT = 32
JOIN_S = 60.0
FIRST_MESSAGES = 10 * GROUPS
TABLES = [
    Table(
        "actor_efficiency",
        "environments a group | by | efficiency | goal | steps/s | bare steps/s | learner CPU",
        "{environments} | {transport} | {efficiency:,.2f} | {goal:,.2f} | {steps_per_s:,.0f} | "
        "{bare_steps_per_s:,.0f} | {learner_cpu_us_a_step[median]:.0f} µs a step",
    )
]


def actor_efficiency(plan: Plan) -> dict[str, Any]:
    """Measure each number of environments a group, through shared memory and over TCP.

    Both sides step two groups of E with the same number of threads on the same cores; ours has
    the actor's process, the wire, and a learner's process whose policy has no model.
    """
    cases = [
        _case(plan, transport, environments)
        for environments in plan.pick((1, 8, 16, 32, 64), (2,))
        for transport in GOALS
    ]
    at_goal = [case for case in cases if case["environments"] == GOAL_AT] or cases
    return {"cases": cases, "value": at_goal[0]["efficiency"]["median"]}


def _case(plan: Plan, transport: str, environments: int) -> dict[str, Any]:
    name = f"actor-{transport.split()[0]}-{environments}"
    path = write_pong(plan, name, environments)
    address = address_of(transport, plan.folder, name)
    threads = plan.actor_threads

    def measure(side: Child, who: str) -> dict[str, float]:
        found = side.ask("measure", seconds=plan.window_s, warm_up_s=plan.warm_up_s)
        return {
            "steps_per_s": found["steps"] / found["seconds"],
            f"{who}cpu_us_a_step": 1e6 * found["cpu_s"] / found["steps"],
        }

    with (
        Child(
            "bare_environments:Bare", plan.folder, f"bare-{name}",
            experiment=path, num_envs=environments, threads=threads,
        ) as bare,
        null_learner(plan, path, name, address) as learner,
        Command(
            plan.folder / f"{name}.log",
            *("actor", path, "--learner", address, "--index", "0"),
            *("--exit-with-parent", str(os.getpid())),
        ) as actor,
    ):  # fmt: skip
        _wait_for(learner, GROUPS * environments, actor)
        learner.ask("measure", seconds=0.1, warm_up_s=plan.warm_up_s)  # closes the gate
        figures = in_turn(
            plan.runs,
            {"": lambda: measure(learner, "learner_"), "bare_": lambda: measure(bare, "")},
            efficiency=("steps_per_s", "bare_steps_per_s"),
        )
        actor.check()
    return {
        "transport": transport,
        "environments": environments,
        "groups": GROUPS,
        "threads_a_group": threads,
        "goal": GOALS[transport].get(environments),
        **figures,
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
