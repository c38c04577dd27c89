"""Selection of the only learner."""

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
    """Counts how often it is asked for its status."""

    def __init__(self) -> None:
        self.asked = asyncio.Semaphore(0)

    async def GetStatus(self, _: Any, __: Any) -> wire.GetStatusReply:
        self.asked.release()
        return wire.GetStatusReply(json=json.dumps({"slots": {"all": 9, "free": 5}}))


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


def test_the_only_learner_is_never_asked(soon: None) -> None:
    async def run() -> None:
        port = free_port()
        learner = Learner()
        address = f"127.0.0.1:{port}"
        server = await serve(port, learner)
        selection = learner_selection.LearnerSelection(address, "group")
        assert await selection.choose(1) == address
        waiting = asyncio.create_task(selection.wait_for_less_loaded(address, 1))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(learner.asked.acquire(), 0.3)
        assert not waiting.done()
        waiting.cancel()
        await server.stop(None)

    asyncio.run(run())
