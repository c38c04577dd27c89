"""`wire_efficiency`: messages a second of our stream over those of a bare grpcio stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.child import Child
from bench.figures import ratio, series
from bench.plan import Plan, pong

WARM_UNROLLS = 4
GOAL_LARGE, LARGE, GOAL = 0.90, 32, 0.70


def wire_efficiency(plan: Plan) -> dict[str, Any]:
    """For each number of environments and of streams.

    Ours is production's path: servicer, session, unroll, batcher, inference thread and back, with
    a policy without a model.
    """
    cases = [
        _case(plan, environments, streams)
        for environments in plan.wire_environments
        for streams in plan.wire_streams
    ]
    return {"cases": cases, "value": min(case["efficiency"]["median"] for case in cases)}


def _case(plan: Plan, environments: int, streams: int) -> dict[str, Any]:
    tag = f"{environments}x{streams}"
    path = plan.folder / f"wire-{tag}.yaml"
    slots = max(2048, environments * streams)
    path.write_text(pong(replace(plan, environments=environments), inference=f"{{slots: {slots}}}"))
    ours, bare = (f"unix:{plan.folder / f'{name}-{tag}.sock'}" for name in ("ours", "bare"))
    at = (str(streams), str(environments))
    with (
        Child("null_learner", plan.folder, str(path), ours, name=f"learner-{tag}") as learner,
        Child("bare_stream", plan.folder, bare, str(environments), name=f"bare-{tag}") as server,
        Child("stream_clients", plan.folder, str(path), ours, *at, name=f"to-ours-{tag}") as a,
        Child("stream_clients", plan.folder, str(path), bare, *at, name=f"to-bare-{tag}") as b,
    ):
        # The learner's heap has its size, and its pages, after some unrolls of every stream.
        a.ask("play", steps=WARM_UNROLLS * plan.unroll_length)
        turns = [(_window(plan, a, learner), _window(plan, b, server)) for _ in range(plan.runs)]
    goal = GOAL_LARGE if environments >= LARGE else GOAL
    return {
        "environments": environments,
        "streams": streams,
        "goal": goal,
        "efficiency": ratio([x["rate"] for x, _ in turns], [y["rate"] for _, y in turns]),
        "messages_per_s": series([x["rate"] for x, _ in turns]),
        "bare_messages_per_s": series([y["rate"] for _, y in turns]),
        "server_cpu_us": series([x["server_us"] for x, _ in turns]),
        "bare_server_cpu_us": series([y["server_us"] for _, y in turns]),
        "client_cpu_us": series([x["client_us"] for x, _ in turns]),
        "bare_client_cpu_us": series([y["client_us"] for _, y in turns]),
    }


def _window(plan: Plan, clients: Child, server: Child) -> dict[str, float]:
    """Messages a second, and CPU microseconds that one costs on either side."""
    clients.ask("measure", seconds=plan.warm_up_s)
    before = server.ask("usage")
    answered = clients.ask("measure", seconds=plan.window_s)
    after = server.ask("usage")
    messages = answered["messages"]
    return {
        "rate": messages / answered["seconds"],
        "server_us": 1e6 * (after["cpu_s"] - before["cpu_s"]) / messages,
        "client_us": 1e6 * answered["cpu_s"] / messages,
    }
