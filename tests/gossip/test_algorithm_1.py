"""Gossip between learners over real streams: Algorithm 1, peers that die and come back, τ."""

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
from tests.support.gossip_team import LAYOUT, Teammate, experiment, replayed, rows
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
    """Makes a learner that has met its peers, and ends what it has made."""
    with ExitStack() as stack:

        def teammate(
            config: Any, rank: int, layout: ParameterLayout = LAYOUT, updates: int = 1
        ) -> Teammate:
            mate = Teammate(config, rank, tmp_path, layout, updates)
            stack.callback(mate.kill)
            mate.start()
            return mate

        yield teammate


def up(mates: list[Teammate]) -> None:
    """Wait until all streams are up."""
    for mate in mates:
        wait_for(
            lambda m=mate: all(link.connected for link in m.transport.clients.values()),
            "all streams",
        )


@pytest.mark.parametrize("name", GRAPHS)
def test_the_parameters_are_what_the_records_say(make: Any, tmp_path: Path, name: str) -> None:
    """Learners of different speeds end where a slow replay of their own records ends: every update
    is in them once, every mixing took exactly the messages that it names, with their weights.
    """
    config = experiment(tmp_path, 4, graphs=GRAPHS[name], distance_every=1)
    mates = [make(config, rank) for rank in range(4)]
    up(mates)
    draw = np.random.default_rng(3)
    for _ in range(40):
        for mate in mates:
            mate.let(int(draw.integers(0, 4 + mate.rank)))
        some = mates[int(draw.integers(4))]
        wait_for(lambda m=some: m.idle, "one of them has caught up")
    for mate in mates:
        mate.end()
    found = replayed(tmp_path, [mate.trainer for mate in mates])
    for mate, x in zip(mates, found, strict=True):
        np.testing.assert_allclose(mate.trainer.flat, x, rtol=2e-4, atol=2e-4)
        assert mate.numbers.mixes > 5
        assert mate.numbers.update_norm > 0
    kinds = {row[1] for row in rows(tmp_path, 0)}
    assert kinds == {"start", "update", "mix"}
    distances = {peer: d for mate in mates for peer, d in mate.numbers.distance.items()}
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
    assert slow.numbers.superseded == 4
    assert slow.numbers.received == 5


def test_a_message_goes_once_the_last_one_is_through(make: Any, tmp_path: Path) -> None:
    """Algorithm 1 broadcasts when old transmissions are completed, and never waits for them; of
    what came meanwhile the newest goes.
    """
    config = experiment(tmp_path, 2)
    sender, receiver = make(config, 0), make(config, 1)
    up([sender, receiver])
    link, loop = sender.transport.clients[1], sender.transport._loop
    link._in_flight = Message(0, 0, LAYOUT.flatten(sender.trainer.params()))
    sender.let(3)
    wait_for(lambda: sender.idle, "it goes on")
    sender.publisher.flush()
    assert receiver.transport.receive_buffer.received == 0
    loop.call_soon_threadsafe(link.on_ack)  # as if the peer had answered now
    wait_for(lambda: link.sent == 2, "the next one is sent, and is through")
    (message,) = receiver.transport.receive_buffer.take([0])
    assert message.iteration == 3
    assert receiver.transport.receive_buffer.received == 1
    assert link.sent_bytes == 2 * 4 * LAYOUT.size


def test_a_ring_closes_around_the_dead_and_opens_for_who_comes_back(
    make: Any, tmp_path: Path
) -> None:
    config = experiment(tmp_path, 3, deadline_s=1.0)
    mates = [make(config, rank) for rank in range(3)]
    up(mates)

    def iterate(who: list[Teammate], until: Any, what: str) -> None:
        def more() -> bool:
            for mate in who:
                if mate.idle:
                    mate.let(1)
            return bool(until())

        wait_for(more, what)

    def mixed(mate: Teammate) -> str:
        return next((r[4] for r in reversed(rows(tmp_path, mate.rank)) if r[1] == "mix"), "")

    iterate(mates, lambda: all(m.numbers.mixes > 3 for m in mates), "all mix")
    assert mixed(mates[0]).startswith("2@")
    assert mixed(mates[2]).startswith("1@")

    # Learner 1 dies: nobody stops, and learner 2 hears learner 0, who sent to learner 1.
    dead = mates.pop(1)
    dead.kill()
    iterate(mates, lambda: mixed(mates[1]).startswith("0@"), "the ring has closed")
    iterate(mates, lambda: [m.numbers.alive for m in mates] == [2, 2], "two are left")
    assert not mates[0].numbers.void
    graph = next(row for row in reversed(rows(tmp_path, 2)) if row[1] == "graph")
    assert graph[3:] == ["", "0 2"]

    # It comes back, from an older checkpoint: before it pushes it takes a peer's parameters.
    ahead = [mate.gossip.iteration for mate in mates]
    back = make(config, 1, updates=dead.trainer.updates)
    own = rows(tmp_path, 1)
    assert [row[1] for row in own[-2:]] == ["start", "adopt"]
    sender, version = own[-1][4].split("*")[0].split("@")
    assert int(version) >= ahead[0 if sender == "0" else 1]
    assert int(own[-2][2]) >= dead.gossip.iteration - 1, "versions go on, and are never used twice"
    mates.insert(1, back)
    mixes = mates[2].numbers.mixes
    iterate(mates, lambda: mixed(mates[2]).startswith("1@"), "the ring has opened")
    iterate(mates, lambda: mates[1].numbers.mixes > 3, "it mixes")
    assert mates[2].numbers.mixes > mixes
    iterate(mates, lambda: [m.numbers.alive for m in mates] == [3, 3, 3], "nobody is missed")
    for mate in mates:
        mate.end()
    # An update that was killed before it was handed on is in nobody's records, nor messages.
    own = rows(tmp_path, 1)
    first_life = own[: [row[1] for row in own].index("start", 1)]
    recorded = sum(row[1] == "update" for row in first_life)
    assert recorded >= dead.done - 1
    back.trainer.given = dead.trainer.given[:recorded] + back.trainer.given
    found = replayed(tmp_path, [mate.trainer for mate in mates])
    for mate, x in zip(mates, found, strict=True):
        np.testing.assert_allclose(mate.trainer.flat, x, rtol=2e-4, atol=2e-4)


def test_tau_waits_for_a_slow_peer_and_no_longer(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 2, staleness=2)
    fast, slow = make(config, 0), make(config, 1)
    up([fast, slow])
    fast.let(10)
    wait_for(lambda: "learner 1" in fast.numbers.waiting, "it waits")
    assert fast.done == 2, "two iterations without a message are allowed, the third waits"
    slow.let(1)
    wait_for(lambda: fast.done == 5, "one message is good for as many again")
    wait_for(lambda: "learner 1" in fast.numbers.waiting, "it waits again")
    assert fast.numbers.wait_seconds > 0


def test_with_tau_0_everybody_goes_on_in_step(make: Any, tmp_path: Path) -> None:
    """They send before they wait, or all would wait for each other until the deadline."""
    config = experiment(tmp_path, 3, staleness=0)
    mates = [make(config, rank) for rank in range(3)]
    up(mates)
    for mate in mates:
        mate.let(300)
    # Not all of them: at the end whoever is last would wait for more.
    wait_for(lambda: all(mate.done > 200 for mate in mates), "two hundred iterations")
    assert [mate.numbers.alive for mate in mates] == [3, 3, 3]
    assert all(mate.numbers.mixes > 100 for mate in mates)
    assert all(mate.numbers.wait_seconds < 15 for mate in mates), "not until a deadline"


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
    wait_for(lambda: "learner 2" in waits.numbers.waiting, "it waits for the other")
    assert waits.done == 1


def test_a_message_from_ahead_is_one_message(make: Any, tmp_path: Path) -> None:
    """In a single graph: τ is exact there."""
    waits, ahead = make(experiment(tmp_path, 2, staleness=0), 0), make(experiment(tmp_path, 2), 1)
    waits.transport.receive_buffer.put(Message(1, 1, ahead.trainer.flat))
    waits.let(1)
    wait_for(lambda: waits.done == 1, "a message for an iteration")
    waits.transport.receive_buffer.put(Message(1, 3, ahead.trainer.flat))
    waits.let(9)
    wait_for(lambda: "learner 1" in waits.numbers.waiting, "it waits for another")
    assert waits.done == 2


def test_tau_waits_no_longer_than_the_deadline(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 2, staleness=0, deadline_s=0.5)
    alone, _ = make(config, 0), make(config, 1)
    alone.let(20)
    wait_for(lambda: alone.done == 20, "it goes on without the peer")
    assert alone.numbers.alive == 1
    assert alone.numbers.wait_seconds < 10 * 0.5


def test_without_tau_nobody_waits(make: Any, tmp_path: Path) -> None:
    alone = make(experiment(tmp_path, 2), 0)
    alone.let(20)
    wait_for(lambda: alone.done == 20, "it goes on, though nobody is there")
    assert alone.numbers.wait_seconds == 0
    assert alone.numbers.mixes == 0


def test_who_was_left_out_takes_a_peers_parameters(make: Any, tmp_path: Path) -> None:
    """It had no actors for longer than the deadline, and its peers went on."""
    config = experiment(tmp_path, 2, deadline_s=1.0)
    idle, other = make(config, 0), make(config, 1)
    up([idle, other])
    idle.let(1)
    wait_for(lambda: idle.done == 1, "it has begun")

    def left_out() -> bool:
        other.let(1)
        return other.numbers.alive == 1

    wait_for(left_out, "the other one goes on alone", every_s=0.05)
    idle.let(1)
    wait_for(lambda: idle.done == 2, "it comes back")
    idle.publisher.flush()
    assert [row[1] for row in rows(tmp_path, 0) if row[1] != "graph"][:4] == [
        *("start", "update", "adopt", "update"),
    ]


def test_who_has_nothing_waits_for_who_has_more(make: Any, tmp_path: Path) -> None:
    """All are started again, and one has lost its directory: parameters of its own would undo what
    the others have learned, who have sent nothing yet.
    """
    config = experiment(tmp_path, 2)
    resumed = make(config, 0, updates=50)
    lost = Teammate(config, 1, tmp_path)
    starting = threading.Thread(target=lost.start)
    starting.start()
    wait_for(lambda: lost.gossip._is_behind, "it knows that it is behind")
    assert starting.is_alive()
    resumed.let(1)
    starting.join(20)
    assert [row[1] for row in rows(tmp_path, 1)] == ["start", "adopt"]
    np.testing.assert_array_equal(lost.trainer.flat, resumed.trainer.flat)
    lost.kill()


def test_an_update_that_hung_is_nobodys(make: Any, tmp_path: Path) -> None:
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
        return other.numbers.alive == 1

    wait_for(left_out, "the other one goes on alone", every_s=0.05)
    received = other.transport.receive_buffer.received
    go_on.set()
    wait_for(lambda: hung.done == 2, "it goes on")
    hung.publisher.flush()
    assert [row[1] for row in rows(tmp_path, 0) if row[1] != "graph"] == [
        *("start", "update", "adopt"),
    ]
    assert other.transport.receive_buffer.received == received


def test_a_diverged_learner_poisons_nobody(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 2)
    sick, healthy = make(config, 0), make(config, 1)
    up([sick, healthy])
    sick.trainer.set_params([np.full((3, 2), np.nan, np.float32), np.zeros(2, np.float32)])
    sick.let(1)
    wait_for(lambda: sick.threads.failure, "it ends")
    assert sick.threads.failure is not None
    assert sick.threads.failure.code is ExitCode.DIVERGED
    assert healthy.transport.receive_buffer.received == 0


def test_over_is_heard_by_all(make: Any, tmp_path: Path) -> None:
    config = experiment(tmp_path, 3)
    mates = [make(config, rank) for rank in range(3)]
    up(mates)
    mates[2].over = "stop.env_frames: 5 of 5"
    mates[2].end()  # its last beat says it
    for mate in mates[:2]:
        wait_for(mate.membership.peers_over, "it has heard")
        assert mate.membership.peers_over() == "learner 2: stop.env_frames: 5 of 5"


# --- what is refused -------------------------------------------------------------------------


# As many numbers as the other's, too: it is not by the size that they differ.
@pytest.mark.parametrize("kernel", [(4, 2), (2, 3)])
def test_another_network_is_refused_by_name(
    make: Any, tmp_path: Path, kernel: tuple[int, int]
) -> None:
    config = experiment(tmp_path, 2)
    one = make(config, 0)
    one.let(1)
    wait_for(lambda: one.done == 1, "it has parameters to give")
    with pytest.raises(SeedbedError, match="learner 0 at unix:") as refusal:
        make(config, 1, ParameterLayout(("dense/kernel", "dense/bias"), (kernel, (2,))))
    assert refusal.value.code is ExitCode.CONFIG
    named = f"refused this one: dense/kernel has shape [3, 2] here and {list(kernel)} there"
    assert named in str(refusal.value)
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
    mates = [make(config, rank) for rank in range(2)]
    up(mates)
    for mate in mates:
        mate.let(20)
    wait_for(lambda: mates[0].membership.all_known()[1].iteration == 20, "all has been heard")
    mates[1].kill()
    shutil.rmtree(mates[1].folder)
    again = make(config, 1, updates=0)
    again.let(1)
    wait_for(lambda: again.done == 1, "an update")
    wait_for(lambda: [row for row in rows(tmp_path, 1) if row[1] == "update"], "recorded")
    kinds = [(row[1], int(row[2])) for row in rows(tmp_path, 1)]
    assert [kind for kind, _ in kinds[:3]] == ["start", "adopt", "update"]
    assert kinds[2][1] > 20


def test_who_waits_for_the_dead_is_not_dead(make: Any, tmp_path: Path) -> None:
    """With τ = 0 learner 2 waits for learner 1, and learner 0, less patient, for learner 2."""
    mates = [
        make(experiment(tmp_path, 3, staleness=0, deadline_s=deadline_s), rank)
        for rank, deadline_s in enumerate((1.0, 4.0, 4.0))
    ]
    up(mates)
    for mate in mates:
        mate.let(5)
    wait_for(lambda: mates[0].numbers.mixes > 2, "they mix")
    mates.pop(1).kill()
    for mate in mates:
        mate.let(10_000)
    wait_for(lambda: all(mate.numbers.alive == 2 for mate in mates), "one is missed")
    done = [mate.done for mate in mates]
    wait_for(lambda: all(m.done > d + 20 for m, d in zip(mates, done, strict=True)), "they go on")
    for mate in mates:
        graphs = [row[4] for row in rows(tmp_path, mate.rank) if row[1] == "graph"]
        assert graphs == ["0 2"], "nobody else was missed"


def pushed(config: Any, hello: wire.GossipHello, *messages: wire.Chunk) -> grpc.RpcError | None:
    """How a learner takes these messages; None is well."""
    requests = [wire.PushRequest(hello=hello), *(wire.PushRequest(chunk=m) for m in messages)]
    with channels.channel(config.gossip.addresses[0]) as channel:
        try:
            list(wire_grpc.GossipStub(channel).Push(iter(requests), timeout=20))
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
            "protocol_version": GOSSIP_PROTOCOL_VERSION, "experiment": "team", "rank": 1,
            "learners": 2, "parameters": LAYOUT.to_wire(), **change,
        }
    )  # fmt: skip


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
