"""`actor_efficiency`: an actor's steps through the wire over the bare vector environment's."""

import os
import socket
import time
from typing import Any

from bench.bare_environments import GROUPS
from bench.child import Child
from bench.command import Command
from bench.figures import series_of
from bench.plan import Plan, write_pong

# By transport and environments a group.
GOALS = {"shared memory": {1: 0.6, 8: 0.9, 32: 0.95}, "tcp": {1: 0.4, 8: 0.78, 32: 0.88}}
GOAL_AT = 32
JOIN_S = 60.0
FIRST_MESSAGES = 10 * GROUPS


def actor_efficiency(plan: Plan) -> dict[str, Any]:
    """Measure each number of environments a group, through shared memory and over TCP.

    Both sides step two groups of E with the same number of threads on the same cores; ours has
    the actor's process, the wire, and a learner's process whose policy has no model.
    """
    cases = [
        _case(plan, transport, environments)
        for environments in plan.actor_environments
        for transport in GOALS
    ]
    at_goal = [case for case in cases if case["environments"] == GOAL_AT] or cases
    return {"cases": cases, "value": at_goal[0]["efficiency"]["median"]}


def free_port() -> int:
    """Return a port of this machine that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _case(plan: Plan, transport: str, environments: int) -> dict[str, Any]:
    name = f"actor-{transport.split()[0]}-{environments}"
    path = write_pong(plan, name, environments)
    address = f"unix:{plan.folder / f'{name}.sock'}"
    if transport == "tcp":
        address = f"127.0.0.1:{free_port()}"
    threads = plan.actor_threads
    with (
        Child(
            "bare_environments:Bare", plan.folder, f"bare-{name}",
            experiment=path, num_envs=environments, threads=threads,
        ) as bare,
        Child(
            "null_learner:NullLearner", plan.folder, f"learner-{name}",
            path=path, listen=address,
        ) as learner,
        Command(
            plan.folder / f"{name}.log",
            *("actor", path, "--learner", address, "--index", "0"),
            *("--exit-with-parent", str(os.getpid())),
        ) as actor,
    ):  # fmt: skip
        _wait_for(learner, GROUPS * environments, actor)
        learner.ask("measure", seconds=0.1, warm_up_s=plan.warm_up_s)  # closes the gate
        turns = [_turn(plan, learner, bare) for _ in range(plan.runs)]
        actor.check()
    return {
        "transport": transport,
        "environments": environments,
        "groups": GROUPS,
        "threads_a_group": threads,
        "goal": GOALS[transport].get(environments),
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
