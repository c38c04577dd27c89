"""Calls over a real connection: refused before a message is read, or served as without a guard."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from seedbed.rpc import channels
from seedbed.rpc.access import AccessInterceptor
from seedbed.rpc.credentials import Credentials
from seedbed.runtime.peer_log import A_MINUTE
from seedbed.runtime.tokens import Caller, Role, Tokens
from seedbed.v1 import gossip_pb2, gossip_pb2_grpc, inference_pb2, inference_pb2_grpc
from tests.support.private_files import write_private

SECRETS = {role: f"{role}-0123456789abcdef" for role in Role}


class Inference(inference_pb2_grpc.InferenceServicer):
    async def Act(self, _: Any, context: Any) -> None:
        message = await context.read()
        await context.write(
            inference_pb2.LearnerMessage(
                finished=inference_pb2.Finished(reason=message.goodbye.reason)
            )
        )

    async def GetStatus(self, request: Any, context: Any) -> Any:
        return inference_pb2.GetStatusReply(json="{}")


class Gossip(gossip_pb2_grpc.GossipServicer):
    async def Reduce(self, _: Any, context: Any) -> Any:
        assert (await context.read()).segment.update == 3
        return gossip_pb2.ReduceReply()

    async def Fetch(self, request: Any, context: Any) -> None:
        for iteration in range(3 if request.whole_state else 0):
            chunk = gossip_pb2.Chunk(iteration=iteration)
            await context.write(gossip_pb2.FetchReply(chunk=chunk))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[grpc.Channel, list[Any]]]:
    """A channel to a server that demands tokens, and the denials so far."""
    path = tmp_path / "tokens"
    write_private(path, "\n".join(f"{role} {secret}" for role, secret in SECRETS.items()))
    denials: list[Any] = []
    ready, stop = threading.Event(), threading.Event()
    address: list[str] = []

    async def serve() -> None:
        guard = AccessInterceptor(Credentials(Role.LEARNER, Tokens(path)), denials.append)
        server = channels.aio_server([guard])
        inference_pb2_grpc.add_InferenceServicer_to_server(Inference(), server)
        gossip_pb2_grpc.add_GossipServicer_to_server(Gossip(), server)
        address.append(channels.bind(server, "127.0.0.1:0"))
        await server.start()
        ready.set()
        await asyncio.to_thread(stop.wait)
        await server.stop(0)

    thread = threading.Thread(target=lambda: channels.run(serve()))
    thread.start()
    assert ready.wait(30)
    with channels.channel(address[0]) as channel:
        yield channel, denials
    stop.set()
    thread.join()


def bearer(role: Role) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {SECRETS[role]}")]


def test_every_kind_of_method_is_served_to_its_role(served: tuple[grpc.Channel, list[Any]]) -> None:
    channel, denials = served
    inference = inference_pb2_grpc.InferenceStub(channel)
    gossip = gossip_pb2_grpc.GossipStub(channel)
    goodbye = inference_pb2.ActorMessage(goodbye=inference_pb2.Goodbye(reason="me"))
    answers = list(inference.Act(iter([goodbye]), metadata=bearer(Role.ACTOR), timeout=10))
    assert [answer.finished.reason for answer in answers] == ["me"]
    status = inference.GetStatus(
        inference_pb2.GetStatusRequest(), metadata=bearer(Role.OBSERVER), timeout=10
    )
    assert status.json == "{}"
    segment = gossip_pb2.ReduceRequest(segment=gossip_pb2.ReduceRequest.Segment(update=3))
    reply = gossip.Reduce(iter([segment]), metadata=bearer(Role.LEARNER), timeout=10)
    assert reply == gossip_pb2.ReduceReply()
    request = gossip_pb2.FetchRequest(whole_state=True)
    chunks = gossip.Fetch(request, metadata=bearer(Role.LEARNER), timeout=10)
    assert [reply.chunk.iteration for reply in chunks] == [0, 1, 2]
    assert denials == []


def test_a_stranger_is_refused_before_the_first_message(
    served: tuple[grpc.Channel, list[Any]],
) -> None:
    channel, denials = served
    never = threading.Event()

    def silent() -> Iterator[inference_pb2.ActorMessage]:
        never.wait(30)
        yield from ()

    call = inference_pb2_grpc.InferenceStub(channel).Act(silent(), timeout=10)
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    never.set()
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "--token-file" in caught.value.details()
    assert [denial.code for denial in denials] == [grpc.StatusCode.UNAUTHENTICATED]


def test_another_role_is_refused(served: tuple[grpc.Channel, list[Any]]) -> None:
    channel, _ = served
    with pytest.raises(grpc.RpcError) as caught:
        list(
            gossip_pb2_grpc.GossipStub(channel).Fetch(
                gossip_pb2.FetchRequest(), metadata=bearer(Role.ACTOR), timeout=10
            )
        )
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "is for the role learner" in caught.value.details()


def test_a_request_that_cannot_be_read_is_an_invalid_argument(
    served: tuple[grpc.Channel, list[Any]],
) -> None:
    channel, _ = served
    fetch = channel.unary_stream("/seedbed.v1.Gossip/Fetch")
    with pytest.raises(grpc.RpcError) as caught:
        list(fetch(b"\xff\xff", metadata=bearer(Role.LEARNER), timeout=10))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_flood_of_denials_is_counted_and_logged_in_a_few_lines(
    served: tuple[grpc.Channel, list[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    channel, denials = served
    stub = inference_pb2_grpc.InferenceStub(channel)
    for _ in range(A_MINUTE + 5):
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            stub.GetStatus(inference_pb2.GetStatusRequest())
    assert len(denials) == A_MINUTE + 5
    assert sum(line.startswith("refused ipv4:127.0.0.1") for line in caplog.messages) == A_MINUTE


def test_half_sent_requests_do_not_hold_up_those_of_another_credential(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    write_private(path, f"observer {SECRETS[Role.OBSERVER]}\n")
    written: list[str] = []

    class Context:
        def invocation_metadata(self) -> list[tuple[str, str]]:
            return bearer(Role.OBSERVER)

        def auth_context(self) -> dict[str, list[bytes]]:
            return {}

        async def read(self) -> str:
            return "request"

        async def write(self, message: str) -> None:
            written.append(message)

    class Details:
        method = "/seedbed.v1.Inference/GetStatus"

    async def answer(request: str, _: Any) -> str:
        return f"answer to {request}"

    async def handler(_: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(answer)

    async def ask() -> None:
        guard = AccessInterceptor(Credentials(Role.LEARNER, Tokens(path)))
        turns = guard._turns
        # As half-sent requests of a stranger, and of an actor, hold theirs.
        async with turns[None], turns[Caller(Role.ACTOR)]:
            served = await guard.intercept_service(handler, Details())
            await asyncio.wait_for(served.stream_stream(None, Context()), 10)

    asyncio.run(ask())
    assert written == ["answer to request"]
