"""`wire_efficiency`: messages a second of our stream over those of a bare grpcio stream."""

from functools import partial
from typing import Any

from bench.child import Child
from bench.figures import series_of
from bench.plan import Plan, write_pong

WARM_UNROLLS = 4
GOAL_LARGE, LARGE, GOAL = 0.90, 32, 0.75


def wire_efficiency(plan: Plan) -> dict[str, Any]:
    """Measure each number of environments and of streams.

    Ours is production's path: servicer, session, unroll, batcher, inference thread and back, with
    a policy without a model. The bare stream is gRPC's as it comes. Beside it is one whose sockets
    completion queues read, as they read ours.
    """
    cases = [
        _case(plan, environments, streams)
        for environments in plan.wire_environments
        for streams in plan.wire_streams
    ]
    return {"cases": cases, "value": min(case["efficiency"]["median"] for case in cases)}


def _case(plan: Plan, environments: int, streams: int) -> dict[str, Any]:
    tag = f"{environments}x{streams}"
    slots = max(2048, environments * streams)
    path = write_pong(plan, f"wire-{tag}", environments, inference=f"{{slots: {slots}}}")
    ours, bare, alike = (
        f"unix:{plan.folder / f'{name}-{tag}.sock'}" for name in ("ours", "bare", "alike")
    )
    clients = partial(
        Child, "stream_clients:Clients", plan.folder,
        experiment=path, streams=streams, num_envs=environments,
    )  # fmt: skip
    servers = partial(Child, "bare_stream:BareServer", plan.folder, reply_bytes=4 * environments)
    with (
        Child(
            "null_learner:NullLearner", plan.folder, f"learner-{tag}", path=path, listen=ours
        ) as learner,
        servers(f"bare-{tag}", listen=bare, by_engine=True) as server,
        servers(f"alike-{tag}", listen=alike) as server_alike,
        clients(f"to-ours-{tag}", address=ours) as a,
        clients(f"to-bare-{tag}", address=bare, by_engine=True) as b,
        clients(f"to-alike-{tag}", address=alike) as c,
    ):  # fmt: skip
        # The learner's heap has its size, and its pages, after some unrolls of every stream.
        a.ask("play", steps=WARM_UNROLLS * plan.unroll_length)
        turns = []
        for _ in range(plan.runs):
            x, y = _window(plan, a, learner), _window(plan, b, server)
            z = _window(plan, c, server_alike)
            turns.append(
                {
                    "efficiency": x["messages_per_s"] / y["messages_per_s"],
                    "of_alike": x["messages_per_s"] / z["messages_per_s"],
                    **x,
                    **{f"bare_{name}": figure for name, figure in y.items()},
                    **{f"alike_{name}": figure for name, figure in z.items()},
                }
            )
    goal = GOAL_LARGE if environments >= LARGE else GOAL
    return {"environments": environments, "streams": streams, "goal": goal, **series_of(turns)}


def _window(plan: Plan, clients: Child, server: Child) -> dict[str, float]:
    """Measure messages a second, and CPU microseconds that one costs on either side."""
    clients.ask("measure", seconds=plan.warm_up_s)
    before = server.ask("usage")
    answered = clients.ask("measure", seconds=plan.window_s)
    after = server.ask("usage")
    messages = answered["messages"]
    return {
        "messages_per_s": messages / answered["seconds"],
        "server_cpu_us": 1e6 * (after["cpu_s"] - before["cpu_s"]) / messages,
        "client_cpu_us": 1e6 * answered["cpu_s"] / messages,
    }
