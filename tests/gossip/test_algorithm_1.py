"""Gossip between learners over real streams: Algorithm 1, peers that fail and come back, τ."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from seedbed.gossip.parameters import ParameterLayout
from seedbed.gossip.transport.buffers import Message
from seedbed.gossip.transport.chunks import CHUNK_BYTES, ChunkAssembler, to_chunks
from seedbed.rpc import channels
from seedbed.rpc.versions import GOSSIP_PROTOCOL_VERSION
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1 import gossip_pb2_grpc as wire_grpc
from tests.support.gossip_learners import LAYOUT, GossipLearner, experiment, replayed, rows
from tests.support.raw_wire import metadata_of
from tests.support.waiting import wait_for

GRAPHS: dict[str, list[Any]] = {
    "ring": ["ring"],
    "complete": ["complete"],
    "in turn": [[[0, 1], [1, 0], [2, 3], [3, 2]], [[1, 2], [2, 1], [3, 0], [0, 3]]],
    "weights": [
        {"weights": [[0.9, 0.1, 0, 0], [0, 0.5, 0.5, 0], [0, 0.25, 0.5, 0.25], [0.5, 0, 0, 0.5]]}
    ],
}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    """Make learners that have connected to their peers, and end them."""
    with ExitStack() as stack:

        def make_learner(
            config: Any, rank: int, layout: ParameterLayout = LAYOUT, updates: int = 1
        ) -> GossipLearner:
            learner = GossipLearner(config, rank, tmp_path, layout, updates)
            stack.callback(learner.kill)
            learner.start()
            return learner

        yield make_learner


def up(learners: list[GossipLearner]) -> None:
    """Wait until all streams are up."""
    for learner in learners:
        wait_for(
            lambda m=learner: all(client.connected for client in m.transport.clients.values()),
            "all streams",
        )


@pytest.mark.parametrize("name", GRAPHS)
def test_the_parameters_are_those_of_the_logs(make: Any, tmp_path: Path, name: str) -> None:
    """Learners of different speeds end where a slow replay of their own logs ends: every update
    is in them once, every mixing took exactly the messages that it names, with their weights.
    """
    config = experiment(tmp_path, 4, graphs=GRAPHS[name], distance_every=1)
    learners = [make(config, rank) for rank in range(4)]
    up(learners)
    draw = np.random.default_rng(3)
    for _ in range(40):
        for learner in learners:
            learner.let(int(draw.integers(0, 4 + learner.rank)))
        some = learners[int(draw.integers(4))]
        wait_for(lambda m=some: m.idle, "one of them has caught up")
    for learner in learners:
        learner.end()
    found = replayed(tmp_path, [learner.trainer for learner in learners])
    for learner, x in zip(learners, found, strict=True):
        np.testing.assert_allclose(learner.trainer.flat, x, rtol=2e-4, atol=2e-4)
        assert learner.stats.mixes > 5
        assert learner.stats.update_norm > 0
    kinds = {row[1] for row in rows(tmp_path, 0)}
    assert kinds == {"start", "update", "mix"}
    distances = {peer: d for learner in learners for peer, d in learner.stats.distance.items()}
    assert all(d > 0 for d in distances.values())
    assert len(distances) == 4


def test_only_the_newest_message_counts_and_the_buffer_is_emptied(
    make: Any, tmp_path: Path
) -> None:
    config = experiment(tmp_path, 2)
    slow, fast = make(config, 0), make(config, 1)
    up([slow, fast])
    for n in range(1, 6):
        fast.let(1)
        wait_for(lambda n=n: slow.transport.receive_buffer.received == n, "it has come")
    slow.let(1)
    wait_for(lambda: slow.done == 1, "one iteration")
    slow.let(1)
    wait_for(lambda: slow.done == 2, "another")
    slow.publisher.flush()
    mixes = [row for row in rows(tmp_path, 0) if row[1] == "mix"]
    assert [row[4] for row in mixes] == ["1@5*0.5"], "the newest, once"
    assert slow.stats.superseded == 4
    assert slow.stats.received == 5


def test_a_message_goes_once_the_last_one_is_through(make: Any, tmp_path: Path) -> None:
    """Algorithm 1 broadcasts when old transmissions are completed, and never waits for them; of
    what came meanwhile the newest goes.
    """
    config = experiment(tmp_path, 2)
    sender, receiver = make(config, 0), make(config, 1)
    up([sender, receiver])
    client, loop = sender.transport.clients[1], sender.transport._loop
    client._in_flight = Message(0, 0, LAYOUT.flatten(sender.trainer.params()))
    sender.let(3)
    wait_for(lambda: sender.idle, "it goes on")
    sender.publisher.flush()
    assert receiver.transport.receive_buffer.received == 0
    loop.call_soon_threadsafe(client.on_ack)  # as if the peer had answered now
    wait_for(lambda: client.sent == 2, "the next one is sent, and is through")
    (message,) = receiver.transport.receive_buffer.take([0])
    assert message.iteration == 3
    assert receiver.transport.receive_buffer.received == 1
    assert client.sent_bytes == 2 * 4 * LAYOUT.size


@pytest.mark.slow
def test_a_ring_closes_around_a_stopped_learner_and_opens_when_it_returns(
    make: Any, tmp_path: Path
) -> None:
    config = experiment(tmp_path, 3, deadline_s=1.0)
    learners = [make(config, rank) for rank in range(3)]
    up(learners)

    def iterate(those: list[GossipLearner], until: Any, what: str) -> None:
        def more() -> bool:
            for learner in those:
                if learner.idle:
                    learner.let(1)
            return bool(until())

        wait_for(more, what)

    def mixed(learner: GossipLearner) -> str:
        return next((r[4] for r in reversed(rows(tmp_path, learner.rank)) if r[1] == "mix"), "")

    iterate(learners, lambda: all(m.stats.mixes > 3 for m in learners), "all mix")
    assert mixed(learners[0]).startswith("2@")
    assert mixed(learners[2]).startswith("1@")

    # Learner 1 is killed. The others go on, and learner 2 receives from learner 0, which sent to
    # learner 1 before.
    dead = learners.pop(1)
    dead.kill()
    iterate(learners, lambda: mixed(learners[1]).startswith("0@"), "the ring has closed")
    iterate(learners, lambda: [m.stats.alive for m in learners] == [2, 2], "two are left")
    assert not learners[0].stats.is_disconnected
    graph = next(row for row in reversed(rows(tmp_path, 2)) if row[1] == "graph")
    assert graph[3:] == ["", "0 2"]

    # It comes back, from an older checkpoint: before it pushes it takes a peer's parameters.
    ahead = [learner.gossip.iteration for learner in learners]
    back = make(config, 1, updates=dead.trainer.updates)
    own = rows(tmp_path, 1)
    assert [row[1] for row in own[-2:]] == ["start", "adopt"]
    sender, version = own[-1][4].split("*")[0].split("@")
    assert int(version) >= ahead[0 if sender == "0" else 1]
    assert int(own[-2][2]) >= dead.gossip.iteration - 1, "versions go on, and are never used twice"
    learners.insert(1, back)
    mixes = learners[2].stats.mixes
    iterate(learners, lambda: mixed(learners[2]).startswith("1@"), "the ring has opened")
    iterate(learners, lambda: learners[1].stats.mixes > 3, "it mixes")
    assert learners[2].stats.mixes > mixes
    iterate(learners, lambda: [m.stats.alive for m in learners] == [3, 3, 3], "all are back")
    for learner in learners:
        learner.end()
    # An update that was killed before it was handed over is in no log and in no message.
    own = rows(tmp_path, 1)
    first_life = own[: [row[1] for row in own].index("start", 1)]
    recorded = sum(row[1] == "update" for row in first_life)
    assert recorded >= dead.done - 1
    back.trainer.given = dead.trainer.given[:recorded] + back.trainer.given
    found = replayed(tmp_path, [learner.trainer for learner in learners])
    for learner, x in zip(learners, found, strict=True):
        np.testing.assert_allclose(learner.trainer.flat, x, rtol=2e-4, atol=2e-4)


def test_tau_waits_for_a_slow_peer_and_no_longer(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 2, staleness=2)
    fast, slow = make(config, 0), make(config, 1)
    up([fast, slow])
    fast.let(10)
    wait_for(lambda: "learner 1" in fast.stats.waiting, "it waits")
    assert fast.done == 2, "two iterations without a message are allowed, the third waits"
    slow.let(1)
    wait_for(lambda: fast.done == 5, "one message is good for as many again")
    wait_for(lambda: "learner 1" in fast.stats.waiting, "it waits again")
    assert fast.stats.wait_seconds > 0


def test_with_tau_0_all_go_on_in_step(make: Any, tmp_path: Path) -> None:
    """They send before they wait, or all would wait for each other until the deadline."""
    config = experiment(tmp_path, 3, staleness=0)
    learners = [make(config, rank) for rank in range(3)]
    up(learners)
    for learner in learners:
        learner.let(300)
    # Not all of them: at the end the last learner would wait for more.
    wait_for(lambda: all(learner.done > 200 for learner in learners), "two hundred iterations")
    assert [learner.stats.alive for learner in learners] == [3, 3, 3]
    assert all(learner.stats.mixes > 100 for learner in learners)
    assert all(learner.stats.wait_seconds < 15 for learner in learners), "not until a deadline"


def test_tau_is_of_new_messages(make: Any, tmp_path: Path) -> None:
    """An old message that waits for another in-peer's is no reason to go on."""
    config = experiment(tmp_path, 3, graphs=["complete"], staleness=1)
    waits, sent, _ = make(config, 0), make(config, 1), make(config, 2)
    up([waits, sent])
    sent.let(1)
    wait_for(
        lambda: waits.transport.receive_buffer.received == 1,
        "one has come, the other sends nothing",
    )
    waits.let(9)
    wait_for(lambda: "learner 2" in waits.stats.waiting, "it waits for the other")
    assert waits.done == 1


def test_a_message_from_ahead_is_one_message(make: Any, tmp_path: Path) -> None:
    """In a single graph: τ is exact there."""
    waits, ahead = make(experiment(tmp_path, 2, staleness=0), 0), make(experiment(tmp_path, 2), 1)
    waits.transport.receive_buffer.put(Message(1, 1, ahead.trainer.flat))
    waits.let(1)
    wait_for(lambda: waits.done == 1, "a message for an iteration")
    waits.transport.receive_buffer.put(Message(1, 3, ahead.trainer.flat))
    waits.let(9)
    wait_for(lambda: "learner 1" in waits.stats.waiting, "it waits for another")
    assert waits.done == 2


def test_tau_waits_no_longer_than_the_deadline(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 2, staleness=0, deadline_s=0.5)
    alone, _ = make(config, 0), make(config, 1)
    alone.let(20)
    wait_for(lambda: alone.done == 20, "it goes on without the peer")
    assert alone.stats.alive == 1
    assert alone.stats.wait_seconds < 10 * 0.5


def test_without_tau_no_learner_waits(make: Any, tmp_path: Path) -> None:
    alone = make(experiment(tmp_path, 2), 0)
    alone.let(20)
    wait_for(lambda: alone.done == 20, "it goes on, though it is alone")
    assert alone.stats.wait_seconds == 0
    assert alone.stats.mixes == 0


def test_a_learner_that_was_left_out_takes_a_peers_parameters(make: Any, tmp_path: Path) -> None:
    """It had no actors for longer than the deadline, and its peers went on."""
    config = experiment(tmp_path, 2, deadline_s=1.0)
    idle, other = make(config, 0), make(config, 1)
    up([idle, other])
    idle.let(1)
    wait_for(lambda: idle.done == 1, "it has begun")

    def left_out() -> bool:
        other.let(1)
        return other.stats.alive == 1

    wait_for(left_out, "the other one goes on alone", every_s=0.05)
    idle.let(1)
    wait_for(lambda: idle.done == 2, "it comes back")
    idle.publisher.flush()
    assert [row[1] for row in rows(tmp_path, 0) if row[1] != "graph"][:4] == [
        "start",
        "update",
        "adopt",
        "update",
    ]


def test_a_learner_without_updates_waits_for_one_with_more(make: Any, tmp_path: Path) -> None:
    """All are started again, and one has lost its directory: parameters of its own would undo what
    the others have learned and not sent yet.
    """
    config = experiment(tmp_path, 2)
    resumed = make(config, 0, updates=50)
    lost = GossipLearner(config, 1, tmp_path)
    starting = threading.Thread(target=lost.start)
    starting.start()
    wait_for(lambda: lost.gossip._is_behind, "it finds that it is behind")
    assert starting.is_alive()
    resumed.let(1)
    starting.join(20)
    assert [row[1] for row in rows(tmp_path, 1)] == ["start", "adopt"]
    np.testing.assert_array_equal(lost.trainer.flat, resumed.trainer.flat)
    lost.kill()


def test_an_update_that_hung_is_dropped(make: Any, tmp_path: Path) -> None:
    """Stopped in the midst of an update for longer than the deadline, it takes a peer's parameters
    instead of pushing its own.
    """
    config = experiment(tmp_path, 2, deadline_s=1.0)
    hung, other = make(config, 0), make(config, 1)
    up([hung, other])
    hung.let(1)
    wait_for(lambda: hung.done == 1, "it has begun")
    step, go_on = hung.trainer.step, threading.Event()

    def stops(batch: Any) -> Any:
        assert go_on.wait(30)
        return step(batch)

    hung.trainer.step = stops
    hung.let(1)

    def left_out() -> bool:
        other.let(1)
        return other.stats.alive == 1

    wait_for(left_out, "the other one goes on alone", every_s=0.05)
    received = other.transport.receive_buffer.received
    go_on.set()
    wait_for(lambda: hung.done == 2, "it goes on")
    hung.publisher.flush()
    assert [row[1] for row in rows(tmp_path, 0) if row[1] != "graph"] == [
        "start",
        "update",
        "adopt",
    ]
    assert other.transport.receive_buffer.received == received


def test_a_diverged_learner_poisons_no_peer(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 2)
    sick, healthy = make(config, 0), make(config, 1)
    up([sick, healthy])
    sick.trainer.set_params([np.full((3, 2), np.nan, np.float32), np.zeros(2, np.float32)])
    sick.let(1)
    wait_for(lambda: sick.threads.failure, "it ends")
    assert sick.threads.failure is not None
    assert sick.threads.failure.code is ExitCode.DIVERGED
    assert healthy.transport.receive_buffer.received == 0


def test_a_stop_condition_reaches_all(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 3)
    learners = [make(config, rank) for rank in range(3)]
    up(learners)
    learners[2].over = "stop.env_frames: 5 of 5"
    learners[2].end()  # its last heartbeat reports it
    for learner in learners[:2]:
        wait_for(learner.membership.peers_over, "the heartbeat has come")
        assert learner.membership.peers_over() == {"env_frames": 2}


# --- what is refused -------------------------------------------------------------------------


# As many numbers as the other's, too: it is not by the size that they differ.
@pytest.mark.parametrize("kernel", [(4, 2), (2, 3)])
def test_another_network_is_refused(
    make: Any,
    tmp_path: Path,
    kernel: tuple[int, int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = experiment(tmp_path, 2)
    one = make(config, 0)
    one.let(1)
    wait_for(lambda: one.done == 1, "it has parameters to give")
    with pytest.raises(SeedbedError, match="learner 0 at unix:") as refusal:
        make(config, 1, ParameterLayout(("dense/kernel", "dense/bias"), (kernel, (2,))))
    assert refusal.value.code is ExitCode.CONFIG
    assert "the log of learner 0 names the first difference" in str(refusal.value)
    named = "another network: dense/kernel [3, 2] here is not there, or has another shape or place"
    assert named in caplog.text
    assert not [row for row in rows(tmp_path, 1) if row[1] == "adopt"]


def test_another_experiment_is_refused_before_its_parameters_are_taken(
    make: Any, tmp_path: Path
) -> None:
    make(experiment(tmp_path, 2), 0).let(1)
    other = experiment(tmp_path, 2)
    other = other.model_copy(update={"name": "else"})
    with pytest.raises(SeedbedError, match="experiment 'team' here and 'else' there"):
        make(other, 1)


def test_another_number_of_learners_may_pass(make: Any, tmp_path: Path) -> None:
    """A release is upgraded one learner after the other: the first new one is not to end for it."""
    make(experiment(tmp_path, 2), 0).let(1)
    early = make(experiment(tmp_path, 3), 1)
    early.let(1)
    wait_for(lambda: early.done == 1, "it begins alone")
    assert not [row for row in rows(tmp_path, 1) if row[1] == "adopt"]


def test_no_version_is_used_twice_by_one_that_lost_its_records(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 2)
    learners = [make(config, rank) for rank in range(2)]
    up(learners)
    for learner in learners:
        learner.let(20)
    wait_for(
        lambda: learners[0].membership.all_known()[1].iteration == 20, "all messages have come"
    )
    learners[1].kill()
    shutil.rmtree(learners[1].folder)
    again = make(config, 1, updates=0)
    again.let(1)
    wait_for(lambda: again.done == 1, "an update")
    wait_for(lambda: [row for row in rows(tmp_path, 1) if row[1] == "update"], "recorded")
    kinds = [(row[1], int(row[2])) for row in rows(tmp_path, 1)]
    assert [kind for kind, _ in kinds[:3]] == ["start", "adopt", "update"]
    assert kinds[2][1] > 20


@pytest.mark.slow
def test_a_learner_that_waits_for_a_stopped_one_counts_as_alive(make: Any, tmp_path: Path) -> None:
    """With τ = 0 learner 2 waits for learner 1, and learner 0 for learner 2, but not as long."""
    learners = [
        make(experiment(tmp_path, 3, staleness=0, deadline_s=deadline_s), rank)
        for rank, deadline_s in enumerate((1.0, 4.0, 4.0))
    ]
    up(learners)
    for learner in learners:
        learner.let(5)
    wait_for(lambda: learners[0].stats.mixes > 2, "they mix")
    learners.pop(1).kill()
    for learner in learners:
        learner.let(10_000)
    wait_for(lambda: all(learner.stats.alive == 2 for learner in learners), "one is missed")
    done = [learner.done for learner in learners]
    wait_for(
        lambda: all(m.done > d + 20 for m, d in zip(learners, done, strict=True)), "they go on"
    )
    for learner in learners:
        graphs = [row[4] for row in rows(tmp_path, learner.rank) if row[1] == "graph"]
        assert graphs == ["0 2"], "no other learner was missed"


def pushed(config: Any, hello: wire.GossipHello, *messages: wire.Chunk) -> grpc.RpcError | None:
    """How a learner takes these messages; None is well."""
    requests = (wire.PushRequest(chunk=message) for message in messages)
    with channels.channel(config.gossip.addresses[0]) as channel:
        try:
            push = wire_grpc.GossipStub(channel).Push
            list(push(requests, metadata=metadata_of(hello), timeout=20))
        except grpc.RpcError as error:
            return error
    return None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learners": 3}, "learner 0 of 2 here, and 1 of 3 there"),
        ({"rank": 0}, "learner 0 of 2 here, and 0 of 2 there"),
        ({"experiment": "else"}, "experiment 'team' here and 'else' there"),
        ({"protocol_version": 9}, f"protocol {GOSSIP_PROTOCOL_VERSION} here and 9 there"),
    ],
)
def test_a_stranger_is_refused(make: Any, tmp_path: Path, change: Any, words: str) -> None:
    config = experiment(tmp_path, 2)
    make(config, 0)
    error = pushed(config, hello(**change))
    assert error is not None
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert words in error.details()


def hello(**change: Any) -> wire.GossipHello:
    return wire.GossipHello(
        **{
            "protocol_version": GOSSIP_PROTOCOL_VERSION,
            "experiment": "team",
            "rank": 1,
            "learners": 2,
            "parameters": LAYOUT.digests(),
            **change,
        }
    )


def damaged(kind: str) -> wire.Chunk:
    values = np.arange(LAYOUT.size, dtype=np.float32)
    if kind == "not finite":
        values[6] = np.inf
    (chunk,) = to_chunks(7, values)
    if kind == "checksum":
        chunk.payload = bytes([chunk.payload[0] ^ 1]) + chunk.payload[1:]
    elif kind == "size":
        chunk.size += 4
    elif kind == "offset":
        chunk.offset = 4
    return chunk


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("checksum", "the sender's is"),
        ("size", "a buffer of 36 bytes, and the parameters take 32"),
        ("offset", "byte 4 of iteration 7, where byte 0 of iteration 7 is next"),
        ("not finite", "dense/bias holds NaN or infinite numbers"),
    ],
)
def test_a_damaged_message_is_refused(make: Any, tmp_path: Path, kind: str, words: str) -> None:
    config = experiment(tmp_path, 2)
    one = make(config, 0)
    error = pushed(config, hello(), damaged(kind))
    assert error is not None
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in error.details()
    assert one.transport.receive_buffer.received == 0
    assert pushed(config, hello(), *to_chunks(8, np.zeros(LAYOUT.size, np.float32))) is None
    assert one.transport.receive_buffer.received == 1, "and it takes the next one that is whole"


def test_a_large_buffer_goes_in_chunks_and_costs_little_more_than_itself() -> None:
    layout = ParameterLayout(("a",), ((CHUNK_BYTES // 4 * 2 + 1000,),))
    values = np.random.default_rng(0).normal(size=layout.size).astype(np.float32)
    messages = list(to_chunks(3, values))
    assert len(messages) == 3
    assert sum(message.ByteSize() for message in messages) < 1.001 * values.nbytes
    assembly = ChunkAssembler(layout)
    whole = [assembly.add(message) for message in messages]
    assert whole[:2] == [None, None]
    np.testing.assert_array_equal(whole[2], values)
