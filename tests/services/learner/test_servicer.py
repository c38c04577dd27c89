"""The learner's end of the wire, over real sockets: what a good actor sees, and a wrong one."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from seedbed.rpc import channels
from seedbed.rpc.hello import HELLO_KEY
from seedbed.rpc.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.services.learner import base
from seedbed.v1 import inference_pb2 as wire
from seedbed.v1 import inference_pb2_grpc as wire_grpc
from tests.support.null_model import NullLearner, null_learner
from tests.support.raw_wire import LocalTransport, Refused, Stream, hello, step, stream
from tests.support.waiting import wait_for


@pytest.fixture(params=["unix", "tcp", "shared memory"])
def learner(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NullLearner]:
    listen = "127.0.0.1:0" if request.param == "tcp" else ""
    if request.param == "shared memory":
        monkeypatch.setattr(Stream, "transport", LocalTransport)
    with null_learner(tmp_path, monkeypatch, listen=listen) as made:
        yield made


@pytest.fixture(params=["unix", "shared memory"])
def bare(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A learner with overrides. Two batches can be in flight, as with an accelerator."""
    if request.param == "shared memory":
        monkeypatch.setattr(Stream, "transport", LocalTransport)

    def make(*overrides: str, **options: Any) -> Any:
        return null_learner(tmp_path, monkeypatch, *overrides, **{"in_flight": 2, **options})

    return make


def status(learner: NullLearner) -> dict[str, Any]:
    with channels.channel(learner.address) as channel:
        stub = wire_grpc.InferenceStub(channel)
        answer: dict[str, Any] = json.loads(
            stub.GetStatus(wire.GetStatusRequest(), timeout=10).json
        )
    return answer


def refused(of: Stream) -> Refused:
    with pytest.raises(Refused) as refusal:
        of.read()
    return refusal.value


def all_slots_free(learner: NullLearner) -> bool:
    slots = learner.servicer._slots
    return slots.available == slots.slots


# --- what a good actor sees --------------------------------------------------------------------


def test_hello_welcome_steps_goodbye(learner: NullLearner) -> None:
    with Stream(learner.address) as actor:
        welcome = actor.handshake(3)
        assert (welcome.protocol_version, welcome.incarnation) == (PROTOCOL_VERSION, 7)
        assert welcome.idle_timeout_seconds == 60
        assert welcome.notice_interval_seconds == 60
        actor.play(9)
        assert learner.telemetry.sessions.environments == 3
        actor.send(wire.ActorMessage(goodbye=wire.Goodbye(reason="enough")))
        assert actor.read() is None
    wait_for(lambda: all_slots_free(learner), "slots given back")
    assert learner.telemetry.sessions.stream_errors == {}
    learner.stop("the test is over")
    assert learner.ended.wait(30)
    counters = learner.counters
    assert counters.env_frames == 8 * 3
    assert counters.trained_frames + counters.discarded_frames == counters.env_frames


def test_bytes_of_actors_elsewhere_are_counted(learner: NullLearner) -> None:
    with Stream(learner.address) as actor:
        actor.handshake(3)
        actor.play(9)
    wait_for(lambda: all_slots_free(learner), "slots given back")
    elsewhere = not learner.address.startswith("unix:")
    step_bytes = len(step(0, 3).step.observation) + 3 * (4 + 1)
    counted = learner.telemetry.network.bytes
    assert counted["actor", "received"] == elsewhere * 9 * step_bytes
    assert counted["actor", "sent"] == elsewhere * 9 * 3 * 4
    assert learner.telemetry.status()["network_bytes"]["actor sent"] == counted["actor", "sent"]


def test_sessions_of_any_size_get_their_own_answers(learner: NullLearner) -> None:
    streams = [Stream(learner.address) for _ in range(4)]
    for actor, environments in zip(streams, (1, 7, 2, 5), strict=True):
        actor.handshake(environments)
    for _ in range(12):
        for actor in streams:
            actor.play()
    for actor in streams:
        actor.close()
    wait_for(lambda: all_slots_free(learner), "slots given back")


def test_the_range_of_exploration_is_of_the_whole_run(bare: Any) -> None:
    """It grows with the environments, and stays when they leave one after the other at the end."""
    with bare("agent=r2d2", "r2d2.epsilon_levels=5", "r2d2.burn_in=0") as learner:

        def told() -> tuple[float | None, float | None]:
            sessions = learner.telemetry.sessions
            return sessions.lowest_epsilon, sessions.highest_epsilon

        def connected() -> int:
            return learner.telemetry.sessions.environments

        assert told() == (None, None)
        with Stream(learner.address) as one, Stream(learner.address) as two:
            one.handshake(2)
            assert told() == pytest.approx((0.4 ** (1 + 7 / 4), 0.4))
            two.handshake(3)
            assert told() == pytest.approx((0.4**8, 0.4))
            one.close()
            wait_for(lambda: connected() == 3, "the first two environments left")
            assert told() == pytest.approx((0.4**8, 0.4))
        wait_for(lambda: connected() == 0, "all environments left")
        assert told() == pytest.approx((0.4**8, 0.4))
        saved = json.loads(json.dumps(learner.telemetry.to_json()))
    with bare("agent=r2d2", "r2d2.epsilon_levels=5", "r2d2.burn_in=0") as learner:
        learner.telemetry.restore(saved)
        assert told() == pytest.approx((0.4**8, 0.4))


def test_status_and_health_with_and_without_actors(learner: NullLearner) -> None:
    before = status(learner)
    assert before["state"] == "waiting"
    assert before["waiting_for"] == "waiting for the first actor"
    with channels.channel(learner.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with stream(learner.address) as actor:
        actor.play(5)
        assert status(learner)["counters"]["env_frames"] == 8
    after = wait_for(
        lambda: (s := status(learner))["waiting_for"] == "no actors are connected" and s,
        "a learner without actors reports it",
    )
    assert after["state"] == "waiting"
    assert after["counters"]["abandoned_episodes"] == 2


def test_an_actor_of_the_next_version_plays_by_this_one(learner: NullLearner) -> None:
    with Stream(learner.address) as newer:
        welcome = newer.handshake(protocol_version=PROTOCOL_VERSION + 1)
        assert welcome.protocol_version == PROTOCOL_VERSION
        newer.play(5)


# --- late answers ------------------------------------------------------------------------------


def test_notice_while_the_model_is_built(bare: Any) -> None:
    with (
        bare("learner.notice_interval_s=0.05", may_build=False) as learner,
        stream(learner.address) as actor,
    ):
        actor.send(step(0))
        notices = [actor.read() for _ in range(3)]
        for message in notices:
            assert message is not None
            assert message.WhichOneof("message") == "notice"
            assert message.notice.reason == "building the model"
            assert message.notice.sequence == 0
        waited = [message.notice.waited_seconds for message in notices if message]
        assert waited == sorted(waited)
        assert waited[0] >= 0.05
        learner.may_build.set()
        while (message := actor.read()) and message.WhichOneof("message") == "notice":
            pass
        assert message is not None
        assert message.WhichOneof("message") == "actions"
        actor.sequence = 1
        actor.play(5)


def test_notice_when_the_unroll_queue_is_full(bare: Any) -> None:
    """Unrolls of 4 steps of 4 environments; the queue has one batch of 4, which is not taken."""
    overrides = ("learner.notice_interval_s=0.05", "logging.interval_s=0.05")
    with bare(*overrides, train=False) as learner, stream(learner.address, 4) as actor:
        actor.play(8)
        actor.send(step(8, 4))
        for _ in range(2):
            message = actor.read()
            assert message is not None
            assert message.notice.sequence == 8
            assert message.notice.reason
        # A short session fits in between: only those with a block wait.
        with stream(learner.address, 1) as other:
            other.play(3)
        assert learner.queue.get(1) is not None
        while (message := actor.read()) and message.WhichOneof("message") == "notice":
            pass
        assert message is not None
        assert message.actions.sequence == 8


# --- what is refused ---------------------------------------------------------------------------

VERSIONS = f"{OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
PRECONDITION, ARGUMENT = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT
WRONG: dict[str, Any] = {
    "version": (
        [hello(protocol_version=9, oldest_protocol_version=7)],
        PRECONDITION,
        "protocol_version",
        VERSIONS,
        "7 to 9",
    ),
    "environment": (
        [hello(environment="Pong-v5")],
        PRECONDITION,
        "environment",
        "'Null-v0'",
        "'Pong-v5'",
    ),
    "group": ([hello(33)], ARGUMENT, "environments", "1 to 32", "33"),
    "no hello": ([None], ARGUMENT, "hello", HELLO_KEY, "nothing"),
    "a truncated hello": (
        [hello().SerializeToString()[:-3]], ARGUMENT, "hello", HELLO_KEY, "bytes",
    ),
    "empty step": ([hello(), wire.ActorMessage()], ARGUMENT, "message", "step", "nothing"),
    "a huge reward": (
        [hello(), step(0), step(1, reward=np.array([0, 3e38], np.float32).tobytes())],
        ARGUMENT,
        "reward",
        "finite numbers of at most 1e+06",
        "e+38 at [1]",
    ),
    "truncated": ([hello(), step(0).SerializeToString()[:-3]], ARGUMENT, "message", "", "bytes"),
}  # fmt: skip


def test_every_wrong_word_is_answered_and_the_learner_lives_on(learner: NullLearner) -> None:
    """One learner takes all of it, while another stream goes on."""
    with stream(learner.address) as good:
        good.play(2)
        for case, ((said, *messages), code, field, expected, received) in WRONG.items():
            with Stream(learner.address) as wrong:
                wrong.begin(said)
                for message in messages:
                    assert wrong.read() is not None, case
                    wrong.send(message)
                refusal = refused(wrong)
            assert refusal.code == code, case
            assert refusal.error is not None, (case, refusal.details)
            assert refusal.error.field == field, case
            assert expected in refusal.error.expected, case
            assert received in refusal.error.received, case
            assert refusal.error.advice, case
            assert refusal.error.received in refusal.details, case
            good.play()
        assert learner.telemetry.sessions.connected == 1
    wait_for(lambda: all_slots_free(learner), "slots given back")
    assert sum(learner.telemetry.sessions.stream_errors.values()) == len(WRONG)


def test_more_environments_than_slots(bare: Any) -> None:
    overrides = ("learner.inference.slots=8", "learner.inference.max_batch_envs=8")
    with bare(*overrides) as learner, stream(learner.address, 5):
        with Stream(learner.address) as late:
            late.begin(hello(4))
            refusal = refused(late)
        # Not a fault of the actor: it tries again, when others may have left.
        assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refusal.error is not None
        assert refusal.error.field == "slots"
        assert "at most 3 environments (8 slots in all)" in refusal.error.expected
        assert refusal.error.received == "4 environments"
        assert "learner.inference.slots" in refusal.error.advice
        with stream(learner.address, 3) as fits:
            fits.play(6)


def test_a_message_over_the_limit_ends_its_stream_alone(learner: NullLearner) -> None:
    if Stream.transport is LocalTransport:
        pytest.skip("a block over the limit is refused: tests/rpc/test_local_streams.py")
    unlimited = [("grpc.max_send_message_length", -1)]
    with stream(learner.address) as good, Stream(learner.address, unlimited) as large:
        large.handshake()
        large.send(step(0, observation=bytes(channels.MAX_MESSAGE_BYTES + 1)))
        refusal = refused(large)
        assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(channels.MAX_MESSAGE_BYTES) in refusal.details
        good.play(5)
        wait_for(lambda: learner.telemetry.sessions.connected == 1, "the other one is gone")


# --- slots and what is under way -----------------------------------------------------------------


@pytest.mark.slow_after(1)
def test_slots_in_a_batch_are_not_given_away_before_it_is_done(bare: Any) -> None:
    overrides = ("learner.inference.slots=4", "learner.inference.max_batch_envs=4")
    with bare(*overrides) as learner:
        learner.policy.gate.clear()
        with stream(learner.address, 4) as leaves:
            leaves.send(step(0, 4))
            assert learner.policy.entered.wait(30)
        wait_for(lambda: learner.telemetry.sessions.connected == 0, "the learner has seen it leave")
        with Stream(learner.address) as early:
            early.begin(hello(1))
            assert refused(early).code == grpc.StatusCode.RESOURCE_EXHAUSTED
        learner.policy.gate.set()
        wait_for(lambda: all_slots_free(learner), "slots given back")
        with stream(learner.address, 4) as later:
            later.play(6)


def test_a_request_that_waits_is_taken_back_with_its_session(bare: Any) -> None:
    """Two sessions are in the first batch; of those that wait for the next one, one leaves."""
    with bare(in_flight=1) as learner:
        with stream(learner.address) as slow:
            learner.policy.gate.clear()
            slow.send(step(0))
            assert learner.policy.entered.wait(30)
            with stream(learner.address) as leaves:
                leaves.send(step(0))
                batcher = learner.servicer.batchers.all[0]
                wait_for(lambda: batcher.depth == 1, "its request waits")
            wait_for(
                lambda: learner.servicer.batchers.all[0].depth == 0, "its request is taken back"
            )
            learner.policy.gate.set()
            message = slow.read()
            assert message is not None
            assert message.actions.sequence == 0
            slow.sequence = 1
            slow.play(5)
        wait_for(lambda: all_slots_free(learner), "slots given back")


def test_a_session_that_leaves_in_mid_unroll_is_counted(learner: NullLearner) -> None:
    with stream(learner.address, 3) as actor:
        actor.play(4 + 3)  # a block ends with its fifth row
    wait_for(lambda: all_slots_free(learner), "slots given back")
    assert learner.counters.env_frames == 6 * 3
    assert learner.counters.discarded_frames == 2 * 3
    assert learner.counters.abandoned_episodes == 3
    with stream(learner.address, 3) as again:  # a new session, from sequence 0
        again.play(2)


def test_a_session_that_leaves_while_its_block_waits_for_room(bare: Any) -> None:
    with bare(train=False) as learner:
        with stream(learner.address, 4) as actor:
            actor.play(8)
            actor.send(step(8, 4))
            wait_for(lambda: learner.servicer.batchers.all[0]._paused == 1, "it is held up")
        wait_for(lambda: all_slots_free(learner), "slots given back")
        assert learner.servicer.batchers.all[0]._paused == 0
        counters = learner.counters
        assert counters.env_frames == 8 * 4
        assert counters.discarded_frames == 4 * 4  # the first block is still in the queue
        with stream(learner.address, 1) as other:
            other.play(3)


# --- the end -------------------------------------------------------------------------------------


def finished(of: Stream) -> str:
    message = of.read()
    assert message is not None
    assert message.WhichOneof("message") == "finished", message
    assert of.read() is None
    return message.finished.reason


def test_a_stop_condition_is_told_to_everyone(bare: Any) -> None:
    """To those that wait for actions, for room in the queue, for the model, or for nothing."""
    overrides = ("stop.env_frames=40",)
    with bare(*overrides, train=False) as learner:
        with (
            stream(learner.address, 4) as held,
            stream(learner.address, 1) as idle,
            stream(learner.address, 1) as ends,
        ):
            held.play(8)
            held.send(step(8, 4))  # 32 frames
            wait_for(lambda: learner.servicer.batchers.all[0]._paused == 1, "it is held up")
            idle.play(1)
            learner.policy.gate.clear()
            ends.send(step(0, 1))
            assert learner.policy.entered.wait(30)
            learner.counters.updates = 1  # frames do not end a run before its first update
            learner.counters.env_frames += 8
            assert finished(held).startswith("stop.env_frames: 40 of 40")
            assert finished(ends).startswith("stop.env_frames")
            idle.send(step(1, 1))
            assert finished(idle).startswith("stop.env_frames")
            learner.policy.gate.set()
        assert learner.ended.wait(30)
        assert learner.summary is not None
        assert learner.summary["stop_reason"].startswith("stop.env_frames")


def test_a_stopped_learner_is_not_the_end_of_the_experiment(bare: Any) -> None:
    """After a signal it will be started again: its actors are to wait for that, not to leave."""
    with bare() as learner, stream(learner.address, 1) as waits, stream(learner.address, 1) as idle:
        idle.play(1)
        learner.policy.gate.clear()
        learner.policy.entered.clear()
        waits.send(step(0, 1))
        assert learner.policy.entered.wait(30)
        learner.stop("signal SIGTERM")
        wait_for(lambda: learner.servicer._ending, "the learner ends")
        idle.send(step(1, 1))
        for actor in (waits, idle):
            refusal = refused(actor)
            assert refusal.code == grpc.StatusCode.UNAVAILABLE
            assert "signal SIGTERM" in refusal.details
        learner.policy.gate.set()
        assert learner.ended.wait(30)


def test_frames_are_conserved_to_the_end(bare: Any) -> None:
    """Whatever is in the queue, in the builder or in the prefetch thread's hands is told."""
    with bare("learner.queue_batches=3") as learner:
        streams = [Stream(learner.address) for _ in range(3)]
        for actor, environments in zip(streams, (3, 5, 2), strict=True):
            actor.handshake(environments)
        hold = _HoldTraining(learner)
        for _ in range(10):  # twice blocks of 3 + 5 + 2 columns: five batches of 4
            for actor in streams:
                actor.play()
        busy = learner.telemetry.busy["prefetch"]
        wait_for(lambda: busy.state[0] == "blocked", "a batch in the hands of prefetch")
        learner.stop("enough")
        wait_for(lambda: busy.state[0] != "blocked", "prefetch gives up")
        hold.release()
        assert learner.ended.wait(30)
        for actor in streams:
            actor.close()
        counters = learner.counters
        assert counters.env_frames == 9 * 10
        assert counters.trained_frames + counters.discarded_frames == counters.env_frames


@pytest.mark.slow
def test_frames_of_a_slow_goodbye_are_told(bare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ends last is accounted for, though no update is worth waiting for."""
    monkeypatch.setattr(base, "SIGNAL_JOIN_S", 0.0)
    with bare() as learner, stream(learner.address) as actor:
        actor.play()
        actor.play()
        finish = learner.servicer.finish

        def late(reason: str, over: bool) -> None:
            asyncio.get_running_loop().call_later(0.5, finish, reason, over)

        monkeypatch.setattr(learner.servicer, "finish", late)
        learner.stop("signal SIGTERM")
        assert learner.ended.wait(30)
        counters = learner.counters
        assert counters.env_frames == counters.discarded_frames > 0


class _HoldTraining:
    """Training takes one batch and keeps it until released."""

    def __init__(self, learner: NullLearner) -> None:
        self._go = threading.Event()
        self.release = self._go.set
        learner.training.observers.append(lambda _: self._go.wait(30))


# --- the listening side --------------------------------------------------------------------------


def test_a_taken_port_is_named(bare: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SeedbedError, match=address) as error, bare(listen=address):
            pass
    assert error.value.code == ExitCode.BIND


def test_a_unix_socket_is_not_taken_from_who_listens(tmp_path: Path) -> None:
    """gRPC alone would unlink it. What a killed process left behind is no obstacle."""
    path = tmp_path / "x.sock"

    async def listen() -> None:
        first, second, third = (channels.aio_server() for _ in range(3))
        channels.bind(first, f"unix:{path}")
        await first.start()
        try:
            with pytest.raises(SeedbedError, match="another process does") as error:
                channels.bind(second, f"unix:{path}")
            assert error.value.code == ExitCode.BIND
        finally:  # or the process does not end
            await first.stop(None)
            await second.stop(None)
        with socket.socket(socket.AF_UNIX) as killed:
            path.unlink(missing_ok=True)
            killed.bind(str(path))
        assert path.exists()
        channels.bind(third, f"unix:{path}")
        await third.start()
        await third.stop(None)

    asyncio.run(listen())


def test_pings_of_idle_clients_are_not_punished() -> None:
    """Or every idle actor gets GOAWAY `too_many_pings`."""
    client, server = dict(channels._CLIENT), dict(channels._SERVER)
    least = server["grpc.http2.min_recv_ping_interval_without_data_ms"]
    assert least < client["grpc.keepalive_time_ms"]
    assert server["grpc.http2.max_ping_strikes"] == 0
    # And a peer that vanished is noticed by either side before the actor's own deadline.
    for side in (client, server):
        assert side["grpc.keepalive_time_ms"] + side["grpc.keepalive_timeout_ms"] < 60_000


def test_log_has_one_line_a_refusal(learner: NullLearner, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), Stream(learner.address) as wrong:
        wrong.begin(b"\xff\xff")
        refused(wrong)
    about = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in about] == ["seedbed.rpc.streams"]
    assert about[0].exc_info is None
