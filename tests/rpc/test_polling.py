"""gRPC's completion queues read the sockets, in every process that serves or connects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What a process imports first, by its subcommand.
SERVICES = (
    "seedbed.services.learner.learner",
    "seedbed.services.actor.actor",
    "seedbed.services.impala_actor.actor",
    "seedbed.services.replay.server",
    "bench.child",
)
# Messages of a stream within one process, and how often the event engine's threads ran meanwhile.
COUNT = """
import asyncio, os
from seedbed.rpc import channels
import grpc
from tests.support.streams import serving

def turns():
    total = 0
    for task in os.listdir("/proc/self/task"):
        folder = f"/proc/self/task/{task}/"
        if "event_engine" in open(folder + "comm").read():
            lines = open(folder + "status").read().splitlines()
            total += int(next(l for l in lines if l.startswith("voluntary")).split()[1])
    return total

async def main():
    async def echo(context):
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(message)

    path = "/test.Test/Echo"
    async with serving(path, echo) as address, channels.aio_channel(address) as channel:
        call = channel.stream_stream(path)()
        await call.write(b"first")
        await call.read()
        before = turns()
        for _ in range(300):
            await call.write(b"x")
            await call.read()
        print(turns() - before, os.environ.get("GRPC_EXPERIMENTS"))
        await call.done_writing()

asyncio.run(main())
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env | environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip


@pytest.mark.slow_after(1)
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
