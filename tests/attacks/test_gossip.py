"""Well-formed gossip of a peer that lies, or is broken: the learner that receives it goes on."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import numpy as np
import pytest

from seedbed.gossip.membership import ImplausibleGrowth, Membership
from seedbed.gossip.second_reading import SecondReading
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.chunks import ChunkAssembler, state_from_wire, to_chunks
from seedbed.gossip.transport.clients import PeerClient
from seedbed.gossip.transport.handshake import PeerRejected, check_hello
from seedbed.gossip.transport.peer_processes import PeerProcesses
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.server import ServerThread
from seedbed.rpc.streams import StreamRejected
from seedbed.runtime.threads import Threads
from seedbed.runtime.tokens import Role, Tokens, new_rank_keys
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc
from tests.support.gossip_learners import LAYOUT, GossipLearner, experiment
from tests.support.private_files import write_private
from tests.support.raw_wire import metadata_of
from tests.support.waiting import wait_for

NAN, INFINITE = math.nan, math.inf


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[GossipLearner]:
    """Learner 0 of two, whose peer is the test."""
    with ExitStack() as stack:
        learner = GossipLearner(experiment(tmp_path, 2), 0, tmp_path, updates=1)
        stack.callback(learner.kill)
        learner.start()
        yield learner
        assert learner.threads.failure is None, learner.threads.failure


def hello_of(victim: GossipLearner, **change: Any) -> wire.GossipHello:
    hello = wire.GossipHello()
    hello.CopyFrom(victim.transport._hello)
    hello.rank, hello.incarnation = 1, 5
    hello.MergeFrom(wire.GossipHello(**change))
    return hello


def stub_of(stack: ExitStack, victim: GossipLearner) -> wire_grpc.GossipStub:
    address = victim.transport.address
    assert address is not None
    return wire_grpc.GossipStub(stack.enter_context(channels.channel(address)))


def refusal_of(call: Any) -> grpc.RpcError:
    """Read a stream until its refusal."""
    with pytest.raises(grpc.RpcError) as refusal:
        list(call)
    return refusal.value


def pushed(victim: GossipLearner, *messages: wire.PushRequest) -> grpc.RpcError:
    """Push messages after a hello, and return the refusal."""
    with ExitStack() as stack:
        push = stub_of(stack, victim).Push
        return refusal_of(push(iter(messages), metadata=metadata_of(hello_of(victim)), timeout=20))


# --- heartbeats ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dollars", NAN),
        ("dollars", INFINITE),
        ("dollars", -1.0),
        ("seconds", NAN),
        ("seconds", -1.0),
        ("return_sum", NAN),
        ("return_sum", -INFINITE),
        ("env_frames", 2**63),
        ("iteration", 2**64 - 1),
    ],
)
def test_a_heartbeat_of_nonsense_is_refused(
    victim: GossipLearner, field: str, value: float
) -> None:
    """NaN dollars made `total.dollars >= stop.dollars` false for ever."""
    heartbeat: Any = {field: value}
    error = pushed(victim, wire.PushRequest(heartbeat=wire.Member(**heartbeat)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert field in error.details()
    assert victim.membership.peers_heard() == {}


def test_a_push_of_over_ends_nothing(victim: GossipLearner) -> None:
    over = wire.PushRequest(heartbeat=wire.Member(iteration=11, over="pwned\x1b[2J"))
    with ExitStack() as stack:
        metadata = metadata_of(hello_of(victim))
        list(stub_of(stack, victim).Push(iter([over]), metadata=metadata, timeout=20))
    wait_for(lambda: victim.membership.peers_heard(), "the heartbeat")
    assert victim.membership.peers_over() == {}


# --- what is stored --------------------------------------------------------------------------


def segment(update: int, hop: int, size: int) -> wire.ReduceRequest:
    data = bytes(4 * size)
    return wire.ReduceRequest(
        segment=wire.ReduceRequest.Segment(update=update, step=hop, data=data)
    )


def reduced(
    victim: GossipLearner | GossipTransport, *segments: wire.ReduceRequest, rank: int = 1
) -> grpc.RpcError:
    with ExitStack() as stack:
        transport = victim if isinstance(victim, GossipTransport) else victim.transport
        hello = wire.GossipHello()
        hello.CopyFrom(transport._hello)
        hello.rank, hello.incarnation = rank, 5
        assert transport.address is not None
        stub = wire_grpc.GossipStub(stack.enter_context(channels.channel(transport.address)))
        with pytest.raises(grpc.RpcError) as refusal:
            stub.Reduce(iter(segments), metadata=metadata_of(hello), timeout=20)
        return refusal.value


def test_no_segment_is_taken_where_gradients_are_not_exchanged(victim: GossipLearner) -> None:
    """Segments that nothing takes filled the memory: 459 to 1,650 MB."""
    error = reduced(victim, *(segment(i, 0, 2**20) for i in range(8)))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "gossip.topology" in error.details()
    assert victim.transport.segment_buffer.held == 0


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[GossipTransport]:
    """Learner 0 of three that all-reduce; learner 2 sends to it. 8 parameters and a weight."""
    config = experiment(tmp_path, 3, topology="allreduce")
    threads = Threads()
    transport = GossipTransport(
        config, Membership(0, 3, 20.0), LAYOUT, threads, PLAIN, wire.Member, Future
    )
    transport.start()
    yield transport
    threads.stopping.set()
    transport.close()
    assert not threads.join(20)
    assert threads.failure is None, threads.failure


@pytest.mark.parametrize(
    ("segments", "words"),
    [
        ([segment(0, 0, 4)], "16 bytes at hop 0, where 12 are expected"),
        ([segment(0, 0, 2)], "8 bytes"),
        ([segment(0, 4, 3)], "hop 4, and the hops are 0 to 3"),
        ([segment(0, 0, 3), segment(0, 2, 3)], r"update 0, hop 2"),
        ([segment(0, 0, 3), segment(1, 1, 3)], r"update 1, hop 1"),
        ([segment(0, 3, 3), segment(2, 0, 3)], r"update 2, hop 0"),
        ([segment(0, i % 4, 3) for i in range(5)], "4 segments wait"),
    ],
)
def test_an_unexpected_segment_ends_its_stream(
    ring: GossipTransport, segments: list[Any], words: str
) -> None:
    error = reduced(ring, *segments, rank=2)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in error.details()
    assert ring.segment_buffer.held == 0, "those before it are dropped too"


def test_segments_come_from_the_learner_before(ring: GossipTransport) -> None:
    error = reduced(ring, segment(0, 0, 3), rank=1)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "learner 2 sends to this one, not learner 1" in error.details()
    assert ring.segment_buffer.streams == 0


@pytest.mark.parametrize(
    "chunk",
    [
        wire.Chunk(iteration=1, size=2**40, payload=bytes(4)),
        wire.Chunk(iteration=1, size=32, offset=2**40, payload=bytes(4)),
        wire.Chunk(iteration=1, size=32, payload=bytes(36)),
    ],
)
def test_no_memory_is_taken_for_a_chunk_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, chunk: wire.Chunk
) -> None:
    assembler = ChunkAssembler(LAYOUT)
    monkeypatch.setattr("seedbed.gossip.transport.chunks.np.empty", None)
    with pytest.raises(ValueError, match="byte"):
        assembler.add(chunk)


def test_a_state_larger_than_this_learners_is_not_read(victim: GossipLearner) -> None:
    """A peer may send arrays for ever."""
    victim.transport._whole_state = lambda: done({"model/a": np.zeros(3 * 2**20, np.float32)})
    assert victim.transport.address is not None
    client = PeerClient(
        0, victim.transport.address, hello_of(victim), wire.Member, 20.0, LAYOUT, PLAIN
    )
    assert client.fetch(state_bytes=12 * 2**20).state["model/a"].shape == (3 * 2**20,)
    with pytest.raises(ValueError, match="more than 12582911 bytes"):
        client.fetch(state_bytes=12 * 2**20 - 1)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"dtype": "float32", "data": np.float32(NAN).tobytes()}, "model/a holds NaN"),
        ({"dtype": "no type", "data": bytes(4)}, "not understood"),
        ({"dtype": "object", "data": bytes(8)}, "OBJECT"),
        ({"dtype": "float32", "shape": [2**31], "data": bytes(4)}, "reshape"),
    ],
)
def test_a_state_of_nonsense_is_refused(part: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        state_from_wire([wire.FetchReply.Array(name="model/a", **part)])


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


# --- streams ---------------------------------------------------------------------------------


class OpenPush:
    """A Push stream that stays open."""

    def __init__(self, stack: ExitStack, victim: GossipLearner, incarnation: int) -> None:
        self._requests: Queue[Any] = Queue()
        metadata = metadata_of(hello_of(victim, incarnation=incarnation))
        push = stub_of(stack, victim).Push
        self.call = push(iter(self._requests.get, None), metadata=metadata, timeout=20)
        stack.callback(self._requests.put, None)

    def send(self, message: wire.PushRequest) -> None:
        self._requests.put(message)

    def welcome(self) -> bool:
        return bool(next(self.call).HasField("welcome"))


def comes(stack: ExitStack, victim: GossipLearner, incarnation: int) -> OpenPush:
    """Return the stream of another process, once those of the one before have ended."""
    new: list[OpenPush] = []

    def is_welcome() -> bool:
        new.append(OpenPush(stack, victim, incarnation))
        with suppress(grpc.RpcError):  # the end of the stream is under way
            return new[-1].welcome()
        return False

    wait_for(is_welcome, "the process that was started again")
    return new[-1]


def test_a_newcomer_disturbs_nobody_and_a_restarted_learner_comes_at_once(
    victim: GossipLearner,
) -> None:
    """One Hello in another learner's rank ended that learner, and cut its edge for good."""
    with ExitStack() as stack:
        old = OpenPush(stack, victim, 5)
        assert old.welcome()
        refused = victim.transport.refused
        error = refusal_of(OpenPush(stack, victim, 6).call)
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS
        assert "another process is connected as learner 1" in error.details()
        assert victim.transport.refused == refused + 1
        assert not victim.transport.rejection(), "a learner that meets this tries again"
        again = OpenPush(stack, victim, 5)
        assert again.welcome(), "a connection that broke unnoticed is replaced"
        assert refusal_of(old.call).code() is grpc.StatusCode.UNAVAILABLE
        again.call.cancel()  # as the kernel ends the streams of a process that is killed
        newest = comes(stack, victim, 6)
        error = refusal_of(OpenPush(stack, victim, 5).call)
        assert error.code() is grpc.StatusCode.ALREADY_EXISTS, "the newest one is connected"
        assert newest.call.is_active()


def test_a_process_that_is_silent_is_replaced_after_the_deadline() -> None:
    """As after the loss of a machine, whose streams nobody ends."""

    async def run() -> None:
        clock = [0.0]
        processes = PeerProcesses(10.0, lambda: clock[0])
        streams = [asyncio.create_task(asyncio.sleep(60)) for _ in range(4)]
        assert processes.admit(1, 5, "Push", streams[0]) == (True, [])
        clock[0] = 8.0
        processes.on_message(1)
        clock[0] = 17.0
        with pytest.raises(StreamRejected, match=r"9\.0 s ago.*10 s of silence"):
            processes.admit(1, 6, "Push", streams[1])
        clock[0] = 18.0
        assert processes.admit(1, 6, "Push", streams[1]) == (True, [streams[0]])
        assert processes.admit(1, 6, "Reduce", streams[2]) == (False, [])
        assert processes.admit(1, 6, "Reduce", streams[3]) == (False, [streams[2]])
        assert processes.incarnation(1) == 6
        for stream in streams:
            stream.cancel()

    asyncio.run(run())


class AtTheAddress(ServerThread):
    """What answers at the address of learner 1."""

    def __init__(self, address: str, incarnation: int, env_frames: int) -> None:
        self.threads = Threads()
        super().__init__(address, self.threads)
        member = wire.Member(env_frames=env_frames)
        self.reply = wire.FetchReply(member=member, incarnation=incarnation)

    def _add(self, server: grpc.aio.Server) -> None:
        async def fetch(_: Any, context: Any) -> None:
            await context.write(self.reply.SerializeToString())

        handler = grpc.unary_stream_rpc_method_handler(fetch)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("seedbed.v1.Gossip", {"Fetch": handler})]
        )

    async def _finish(self) -> None: ...

    def __enter__(self) -> AtTheAddress:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.stopping.set()
        self.close()
        assert not self.threads.join(20)


def test_what_a_process_states_is_kept_once_its_address_answers_as_the_same_one(
    victim: GossipLearner, tmp_path: Path
) -> None:
    address = experiment(tmp_path, 2).gossip.addresses[1]
    kept = victim.membership.to_json
    with ExitStack() as stack:
        lie = wire.PushRequest(heartbeat=wire.Member(iteration=10**6, env_frames=10**12))
        other = OpenPush(stack, victim, 6)
        assert other.welcome()
        other.send(lie)
        wait_for(lambda: 1 in victim.membership.peers_heard(), "its heartbeat")
        assert "1" not in kept()
        other.call.cancel()
        with AtTheAddress(address, 5, 70):
            own = comes(stack, victim, 5)
            own.send(wire.PushRequest(heartbeat=wire.Member(iteration=3, env_frames=71)))
            wait_for(lambda: kept().get("1", {}).get("env_frames") == 71, "its heartbeat")
            assert victim.membership.highest_iteration(1) == 3


def test_a_count_that_no_learner_reaches_ends_the_stream(victim: GossipLearner) -> None:
    """One heartbeat of 10^12 frames ended a run with exit code 0."""
    with ExitStack() as stack:
        stream = OpenPush(stack, victim, 5)
        assert stream.welcome()
        stream.send(wire.PushRequest(heartbeat=wire.Member(iteration=3, env_frames=71)))
        stream.send(wire.PushRequest(heartbeat=wire.Member(iteration=4, env_frames=10**12)))
        error = refusal_of(stream.call)
        assert error.code() is grpc.StatusCode.OUT_OF_RANGE
        assert "env_frames of learner 1 is 1e+12, and was 71" in error.details()
        assert victim.membership.peers_heard()[1].env_frames == 71


def test_a_learner_that_takes_over_a_state_jumps_to_its_counts() -> None:
    clock = [0.0]
    membership = Membership(0, 3, 20.0, now=lambda: clock[0])
    membership.update(2, wire.Member(env_frames=10**13, updates=10**9, seconds=1e6))
    membership.update(1, wire.Member())
    membership.update(1, wire.Member(env_frames=10**13, updates=10**9, seconds=1e6))
    membership.update(1, wire.Member(iteration=10**12), own=wire.Member(iteration=10**12))
    with pytest.raises(ImplausibleGrowth, match=r"1 is 1e\+15, and was 0 0\.0 s before"):
        membership.on_parameters(1, 10**15)
    membership.on_parameters(1, 10**12, own=wire.Member(iteration=10**12))
    membership.on_parameters(1, 10**12 + 10**6)
    clock[0] = 1e4
    membership.update(2, wire.Member(env_frames=10**13 + 10**12))
    membership.on_process(1)
    membership.update(1, wire.Member(env_frames=10**15))


# --- keys of ranks ---------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> dict[int, Credentials]:
    """Credentials of three learners, each with the key of its rank alone."""
    made, digests = new_rank_keys(range(3))
    return {
        rank: Credentials(
            Role.LEARNER, Tokens(write_private(tmp_path / f"key-{rank}", key + digests))
        ).of_rank(rank)
        for rank, key in enumerate(made.values())
    }


def test_a_rank_is_proved_by_its_key(tmp_path: Path, keys: dict[int, Credentials]) -> None:
    """One Hello in another learner's rank ended that learner: exit code 10, and 35 of the ring."""
    config = experiment(tmp_path, 3)
    threads, membership = Threads(), Membership(0, 3, 20.0)
    transport = GossipTransport(config, membership, LAYOUT, threads, keys[0], wire.Member, Future)
    try:
        transport.start()
        assert transport.address is not None

        def push(key: Credentials | None, rank: int) -> Any:
            hello = wire.GossipHello()
            hello.CopyFrom(transport._hello)
            hello.rank, hello.incarnation = rank, 5
            credential = key.metadata() if key is not None else ()
            stub = wire_grpc.GossipStub(channel)
            requests: Queue[Any] = Queue()
            metadata = (*credential, *metadata_of(hello))
            return stub.Push(iter(requests.get, None), metadata=metadata, timeout=20)

        with channels.channel(transport.address) as channel:
            own = push(keys[1], 1)
            assert next(own).HasField("welcome")
            refused = transport.refused
            error = refusal_of(push(keys[2], 1))
            assert error.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "the key is of learner 2, and the Hello of learner 1" in error.details()
            error = refusal_of(push(None, 1))
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED
            assert transport.refused == refused + 2
            assert own.is_active()
            assert next(push(keys[2], 2)).HasField("welcome")
    finally:
        threads.stopping.set()
        transport.close()
        assert not threads.join(20)


def test_statuses_are_requested_at_the_addresses_of_the_peers(
    victim: GossipLearner, tmp_path: Path
) -> None:
    reading = SecondReading(victim.transport.request_statuses)
    address = experiment(tmp_path, 2).gossip.addresses[1]

    def answers() -> Any:
        found: list[Any] = []
        wait_for(lambda: found.append(reading.answers()) or found[-1] is not None, "the answers")
        return found[-1]

    assert answers() == {}, "nobody answers there"
    reading._next_s = 0.0
    with AtTheAddress(address, 5, 70):
        assert answers()[1].env_frames == 70
    assert victim.membership.to_json()["1"]["env_frames"] == 70


@pytest.mark.parametrize("answer", [b"\x12\x00", b"\xff\xff\xff"])
def test_an_answer_that_was_not_asked_for_ends_the_connection_alone(
    tmp_path: Path, answer: bytes
) -> None:
    """`Received` without parameters in flight ended the learner with an AssertionError."""
    calls: list[int] = []

    async def push(_: Any, context: Any) -> None:
        calls.append(1)
        await context.write(wire.PushReply(welcome=wire.PushReply.Welcome()).SerializeToString())
        await context.write(answer)
        await context.read()
        await context.read()

    class Peer(ServerThread):
        def _add(self, server: grpc.aio.Server) -> None:
            handler = grpc.stream_stream_rpc_method_handler(push)
            server.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler("seedbed.v1.Gossip", {"Push": handler})]
            )

        async def _finish(self) -> None: ...

    config = experiment(tmp_path, 2)
    threads = Threads()
    peer = Peer(config.gossip.addresses[1], threads)
    learner = GossipLearner(config, 0, tmp_path, updates=1)
    try:
        peer.start()
        learner.start()
        wait_for(lambda: len(calls) > 2, "it connects again")
        assert learner.threads.failure is None, learner.threads.failure
        assert learner.transport.refused > 0
    finally:
        learner.kill()
        threads.stopping.set()
        peer.close()
        assert not threads.join(20)


@pytest.mark.parametrize("method", ["Fetch", "Push", "Reduce"])
def test_a_request_that_cannot_be_read_is_refused_without_a_traceback(
    victim: GossipLearner, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """16,985 tracebacks were 26 MB of log."""
    assert victim.transport.address is not None
    with channels.channel(victim.transport.address) as channel:
        call = channel.stream_stream(f"/seedbed.v1.Gossip/{method}")
        metadata = metadata_of(hello_of(victim))
        error = refusal_of(call(iter([b"\xff\xff\xff"]), metadata=metadata, timeout=20))
    expected = {"Reduce": grpc.StatusCode.FAILED_PRECONDITION}
    assert error.code() is expected.get(method, grpc.StatusCode.INVALID_ARGUMENT)
    assert not [record for record in caplog.records if record.exc_info]


# --- what a refusal tells ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["Fetch", "Push"])
def test_a_refusal_does_not_spell_out_the_model(
    victim: GossipLearner, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """25 refusals told all names and shapes, and then Fetch gave the parameters."""
    hello = hello_of(victim)
    hello.parameters[1] += 1
    with ExitStack() as stack:
        stub, metadata = stub_of(stack, victim), metadata_of(hello)
        call = (
            stub.Fetch(wire.FetchRequest(), metadata=metadata, timeout=20)
            if method == "Fetch"
            else stub.Push(iter([]), metadata=metadata, timeout=20)
        )
        error = refusal_of(call)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "dense/bias" not in error.details()
    assert "network" in error.details()
    assert "dense/bias [2] here is not there" in caplog.text


def test_a_learner_with_a_credential_is_told_the_difference(victim: GossipLearner) -> None:
    own = victim.transport._hello
    theirs = hello_of(victim)
    theirs.parameters[1] += 1
    with pytest.raises(PeerRejected, match=r"dense/bias \[2\] here is not there"):
        check_hello(own, theirs, LAYOUT, is_protected=True)
    del theirs.parameters[1:]
    with pytest.raises(PeerRejected, match="2 parameters here and 1 there"):
        check_hello(own, theirs, LAYOUT, is_protected=True)


# --- parameters ------------------------------------------------------------------------------


def chunks_of(value: float, iteration: int = 7) -> list[wire.PushRequest]:
    values = np.full(LAYOUT.size, value, np.float32)
    return [wire.PushRequest(chunk=chunk) for chunk in to_chunks(iteration, values)]


@pytest.mark.parametrize("value", [3e38, -3e38, 36.0])
def test_parameters_beyond_the_receivers_norm_are_not_mixed(
    victim: GossipLearner, value: float
) -> None:
    """One message of 3e38 made the loss NaN: exit code 42."""
    error = pushed(victim, *chunks_of(value))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"norm {math.sqrt(8) * abs(value):.6g} there and 0 here" in error.details()
    assert "gossip.max_norm_ratio is 100" in error.details()
    assert victim.transport.receive_buffer.received == 0
    assert victim.membership.alive() == {0}, "the graph closes around the sender"
    victim.let(3)
    wait_for(lambda: victim.done == 3, "it goes on")
    assert victim.stats.mixes == 0
    wait_for(lambda: victim.stats.refused >= 1, "it is counted")
    with ExitStack() as stack:
        requests, metadata = chunks_of(30.0, iteration=8), metadata_of(hello_of(victim))
        list(stub_of(stack, victim).Push(iter(requests), metadata=metadata, timeout=20))
    assert victim.membership.alive() == {0, 1}, "with parameters within the bound it is back"
    victim.let(1)
    wait_for(lambda: victim.stats.mixes == 1, "they are mixed")


def test_small_parameters_of_a_peer_do_not_shrink_those_of_a_trained_one(
    victim: GossipLearner,
) -> None:
    check = victim.transport.check_norm
    victim.transport.own_norm = 1001.0
    with pytest.raises(ValueError, match="norm 10 there and 1001 here"):
        check(np.full(1, 10.0, np.float32))
    check(np.full(1, 10.1, np.float32))
    victim.transport.own_norm = 0.001
    check(np.full(1, 1e-6, np.float32))  # what has hardly begun differs by any factor


@pytest.mark.parametrize("status", [wire.Member(), wire.Member(dollars=NAN)])
def test_a_start_goes_on_without_the_parameters_of_a_mad_peer(
    tmp_path: Path, status: wire.Member
) -> None:
    config = experiment(tmp_path, 2)
    mad = GossipLearner(config, 1, tmp_path, updates=1)
    learner = GossipLearner(config, 0, tmp_path, updates=0)
    try:
        mad.start()
        mad.transport.heartbeat = lambda: status
        mad.transport._newest = Message(1, 1, np.full(LAYOUT.size, 3e38, np.float32))
        learner.start()
        assert np.array_equal(learner.trainer.flat, np.zeros(8))
        assert learner.transport.refused >= 1
        learner.let(1)
        wait_for(lambda: learner.done == 1, "it trains")
    finally:
        learner.kill()
        mad.kill()
