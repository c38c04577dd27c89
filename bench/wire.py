"""`wire_efficiency`: messages a second of our stream over those of a bare grpcio stream."""

from functools import partial
from typing import Any

from bench.child import Child
from bench.figures import in_turn
from bench.plan import Plan, write_pong
from bench.report import Table
from bench.sides import address_of, clients, null_learner

WARM_UNROLLS = 4
GOAL_LARGE, LARGE, GOAL = 0.90, 32, 0.75
TABLES = [
    Table(
        "wire_efficiency",
        "E | streams | efficiency | goal | messages/s | bare messages/s | server CPU a message | "
        "bare | of bare streams read alike | their messages/s | their CPU",
        "{environments} | {streams} | {efficiency:,.2f} | {goal:,.2f} | {messages_per_s:,.0f} | "
        "{bare_messages_per_s:,.0f} | {server_cpu_us[median]:.0f} µs | "
        "{bare_server_cpu_us[median]:.0f} µs | {of_alike:,.2f} | {alike_messages_per_s:,.0f} | "
        "{alike_server_cpu_us[median]:.0f} µs",
    )
]


def wire_efficiency(plan: Plan) -> dict[str, Any]:
    """Measure each number of environments and of streams.

    Ours is production's path: servicer, session, unroll, batcher, inference thread and back, with
    a policy without a model. The bare stream is gRPC's as it comes. Beside it is one whose sockets
    completion queues read, as they read ours.
    """
    cases = [
        _case(plan, environments, streams)
        for environments in plan.pick((1, 8, 32), (2,))
        for streams in plan.pick((2, 128), (2,))
    ]
    return {"cases": cases, "value": min(case["efficiency"]["median"] for case in cases)}


def _case(plan: Plan, environments: int, streams: int) -> dict[str, Any]:
    tag = f"{environments}x{streams}"
    slots = max(2048, environments * streams)
    path = write_pong(plan, f"wire-{tag}", environments, inference=f"{{slots: {slots}}}")
    ours, bare, alike = (
        address_of("", plan.folder, f"{name}-{tag}") for name in ("ours", "bare", "alike")
    )
    servers = partial(
        Child, "bare_stream:BareServer", plan.folder, reply_bytes=4 * environments, welcomes=True
    )
    asking = partial(clients, plan, path, streams=streams, num_envs=environments)
    with (
        null_learner(plan, path, tag, ours) as learner,
        servers(f"bare-{tag}", listen=bare, by_engine=True) as server,
        servers(f"alike-{tag}", listen=alike) as server_alike,
        asking(f"ours-{tag}", ours) as to_ours,
        asking(f"bare-{tag}", bare, by_engine=True) as to_bare,
        asking(f"alike-{tag}", alike) as to_alike,
    ):
        # The learner's heap has its size, and its pages, after some unrolls of every stream.
        to_ours.ask("play", steps=WARM_UNROLLS * plan.unroll_length)
        figures = in_turn(
            plan.runs,
            {
                "": partial(_window, plan, to_ours, learner),
                "bare_": partial(_window, plan, to_bare, server),
                "alike_": partial(_window, plan, to_alike, server_alike),
            },
            efficiency=("messages_per_s", "bare_messages_per_s"),
            of_alike=("messages_per_s", "alike_messages_per_s"),
        )
    goal = GOAL_LARGE if environments >= LARGE else GOAL
    return {"environments": environments, "streams": streams, "goal": goal, **figures}


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
