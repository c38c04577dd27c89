"""gRPC's completion queues read the sockets, in every process that serves or connects."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# What a process imports first, by its subcommand.
SERVICES = (
    "seedbed.services.learner.learner",
    "seedbed.services.actor.actor",
    "seedbed.services.impala_actor.actor",
    "seedbed.services.frontend.frontend",
    "seedbed.services.replay.server",
    "bench.child",
)
# Messages of a stream within one process, and how often the event engine's threads ran meanwhile.
COUNT = """
import asyncio, os
from seedbed.rpc import channels
import grpc

def turns():
    total = 0
    for task in os.listdir("/proc/self/task"):
        folder = f"/proc/self/task/{task}/"
        if "event_engine" in open(folder + "comm").read():
            lines = open(folder + "status").read().splitlines()
            total += int(next(l for l in lines if l.startswith("voluntary")).split()[1])
    return total

async def main():
    async def echo(request, context):
        return request

    method = grpc.unary_unary_rpc_method_handler(echo)
    server = channels.aio_server()
    handlers = grpc.method_handlers_generic_handler("test.Test", {"Echo": method})
    server.add_generic_rpc_handlers((handlers,))
    address = channels.bind(server, "localhost:0")
    await server.start()
    async with channels.aio_channel(address) as channel:
        call = channel.unary_unary("/test.Test/Echo")
        await call(b"first")
        before = turns()
        for _ in range(300):
            await call(b"x")
        print(turns() - before, os.environ.get("GRPC_EXPERIMENTS"))
    await server.stop(0)

asyncio.run(main())
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env | environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("module", SERVICES)
def test_the_choice_is_made_before_grpc_is_imported(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    modules = run(code).stdout.split()
    assert modules.index("seedbed.rpc.polling") < modules.index("grpc")


def test_messages_pass_no_thread_of_the_event_engine() -> None:
    done = run(COUNT)
    turns, left = done.stdout.split()
    assert int(turns) < 300, "with the event engine there are 6 turns a message"
    assert left == "None", "children and other libraries choose for themselves"
    assert "Unknown experiment" not in done.stderr


def test_the_environment_chooses_otherwise() -> None:
    turns, left = run(COUNT, GRPC_EXPERIMENTS="-event_engine_fork").stdout.split()
    assert int(turns) > 300
    assert left == "-event_engine_fork"
