"""`frontends`: what a message costs the learner's host with 0, 1, 2 and 4 front ends."""

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench.actor import free_port
from bench.child import Child
from bench.command import Command
from bench.figures import series_of
from bench.plan import Plan, write_pong

RATE = 1e6


def frontends(plan: Plan) -> dict[str, Any]:
    """Measure each number of front ends, in turn: all listen at once, and play one by one."""
    streams, environments = plan.frontend_streams, plan.frontend_environments
    slots = max(2048, environments * streams)
    with ExitStack() as opened:
        sides = {}
        for count in plan.frontends:
            name = f"frontends-{count}"
            path = write_pong(plan, name, environments, inference=f"{{slots: {slots}}}")
            address, ports = f"127.0.0.1:{free_port()}", [free_port() for _ in range(count)]
            learner = opened.enter_context(
                Child(
                    "null_learner:NullLearner", plan.folder, f"learner-{name}",
                    path=path, listen=address, frontend_ports=ports,
                )
            )  # fmt: skip
            socket = learner.ask("frontends_path")
            if socket:  # in a folder of its own, which the end of the learner's process leaves
                opened.callback(shutil.rmtree, Path(socket).parent, ignore_errors=True)
            relays = [
                opened.enter_context(_frontend(plan, name, socket, i, port))
                for i, port in enumerate(ports)
            ]
            addresses = [f"127.0.0.1:{port}" for port in ports] or [address]
            clients = opened.enter_context(
                Child(
                    "stream_clients:Clients", plan.folder, f"to-{name}",
                    experiment=path, address=",".join(addresses), streams=streams,
                    num_envs=environments,
                )
            )  # fmt: skip
            sides[count] = partial(_window, plan, clients, learner, relays)
        turns: dict[int, list[dict[str, float]]] = {count: [] for count in sides}
        for _ in range(plan.runs):
            for count, measure in sides.items():
                turns[count].append(measure())
    cases = []
    for count, each in turns.items():
        pairs = zip(each, turns[plan.frontends[0]], strict=True)
        grown = [{"host_cpu_ratio": a["host_cpu_us"] / b["host_cpu_us"]} for a, b in pairs]
        cases.append({"frontends": count, **series_of(each), **series_of(grown)})
    return {"streams": streams, "environments": environments, "cases": cases}


def _frontend(plan: Plan, name: str, path: str, number: int, port: int) -> Command:
    log = plan.folder / f"{name}-{number}.log"
    relay = Command(
        log, "frontend", "--learner", path, "--number", str(number),
        "--listen", f"127.0.0.1:{port}",
    )  # fmt: skip
    relay.wait_until_log_says("front end", 60.0)
    return relay


def _window(plan: Plan, clients: Child, learner: Child, relays: list[Command]) -> dict[str, float]:
    """Return rates, CPU microseconds a message of learner and front ends, latency and fairness."""
    clients.ask("measure", seconds=plan.warm_up_s, deadline_s=300.0)
    before, relayed = learner.ask("usage"), sum(map(_cpu_s, relays))
    answered = clients.ask("measure", seconds=plan.window_s, deadline_s=300.0)
    after, relayed_after = learner.ask("usage"), sum(map(_cpu_s, relays))
    messages = answered["messages"]
    learner_us = RATE * (after["cpu_s"] - before["cpu_s"]) / messages
    frontend_us = RATE * (relayed_after - relayed) / messages
    return {
        "messages_per_s": messages / answered["seconds"],
        "learner_cpu_us": learner_us,
        "frontend_cpu_us": frontend_us,
        "host_cpu_us": learner_us + frontend_us,
        "p50_ms": answered["p50_ms"],
        "p99_ms": answered["p99_ms"],
        "least_of_a_stream": answered["least"] / max(1.0, answered["mean"]),
        "most_of_a_stream": answered["most"] / max(1.0, answered["mean"]),
    }


def _cpu_s(command: Command) -> float:
    """Return the CPU seconds of a process, to a nanosecond."""
    tasks = Path(f"/proc/{command.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
