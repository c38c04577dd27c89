"""Selection of a learner whose front ends have all ended: past them, and back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc.aio
import pytest

from seedbed.services.actor import learner_selection
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc
from tests.support.processes import free_port


class Learner(wire_grpc.InferenceServicer):
    """Says that it has a front end at a port, and counts how often it was asked."""

    def __init__(self, frontends: list[int]) -> None:
        self.frontends = [{"port": port, "environments": 0} for port in frontends]
        self.asked = asyncio.Semaphore(0)

    async def GetStatus(self, _: Any, __: Any) -> wire.GetStatusReply:
        self.asked.release()
        status: dict[str, Any] = {"slots": {"all": 9, "free": 5}}
        if self.frontends:
            status["frontends"] = self.frontends
        return wire.GetStatusReply(json=json.dumps(status))


async def serve(port: int, learner: Learner) -> Any:
    server = grpc.aio.server()
    wire_grpc.add_InferenceServicer_to_server(learner, server)
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    await server.start()
    return server


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_selection, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(learner_selection, "STATUS_TIMEOUT_S", 0.5)


def test_a_group_that_went_past_its_front_ends_goes_back(soon: None) -> None:
    async def run() -> None:
        port, frontend = free_port(), free_port()
        learner = Learner([frontend])
        address, way = f"127.0.0.1:{port}", f"127.0.0.1:{frontend}"
        server = await serve(port, learner)
        selection = learner_selection.LearnerSelection(address, "group")
        assert await selection.choose(1) == way
        selection.on_failure(way)
        assert await selection.choose(1) == address, "until its front end is back"
        waiting = asyncio.create_task(selection.wait_for_less_loaded(address, 1))
        for _ in range(4):  # twice while it goes past, and twice while it waits
            await asyncio.wait_for(learner.asked.acquire(), 30)
        assert not waiting.done(), "the front end does not take connections"
        relay = await serve(frontend, learner)
        await asyncio.wait_for(waiting, 30)
        await relay.stop(None)
        await server.stop(None)

    asyncio.run(run())


def test_a_learner_without_front_ends_is_not_asked_again(soon: None) -> None:
    async def run() -> None:
        port = free_port()
        learner = Learner([])
        address = f"127.0.0.1:{port}"
        server = await serve(port, learner)
        selection = learner_selection.LearnerSelection(address, "group")
        assert await selection.choose(1) == address
        await learner.asked.acquire()
        waiting = asyncio.create_task(selection.wait_for_less_loaded(address, 1))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(learner.asked.acquire(), 0.3)
        assert not waiting.done()
        waiting.cancel()
        await server.stop(None)

    asyncio.run(run())
