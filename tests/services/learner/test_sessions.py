"""Sessions: what they refuse, what they count, and slots."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from seedbed.config import parse_experiment
from seedbed.numbers import Bounds, check_magnitudes
from seedbed.packed import Entry, PackedSpec
from seedbed.rpc.channels import MAX_MESSAGE_BYTES
from seedbed.rpc.step_codec import Step, read_actor_message, write_actor_message
from seedbed.rpc.versions import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from seedbed.services.learner.sessions import session as session_module
from seedbed.services.learner.sessions.handshake import validate_hello
from seedbed.services.learner.sessions.rejections import InvalidStep, NoCapacity, SpecMismatch
from seedbed.services.learner.sessions.session import Session
from seedbed.services.learner.sessions.slots import SlotAllocator
from seedbed.services.learner.unrolls.unroll import SessionUnroll, UnrollSpec
from seedbed.spec import FIRST, LIFE_LOST, TERMINATED, TRUNCATED, ArraySpec, EnvironmentSpec
from seedbed.telemetry import Counters, Telemetry
from seedbed.v1 import inference_pb2 as wire

SPEC = EnvironmentSpec("Toy-v0", ArraySpec((3,), "float32"), actions=4, action_repeat=2)
E = 2


def make_telemetry() -> Telemetry:
    experiment = parse_experiment("name: toy\nenvironment: {id: Toy-v0}")
    return Telemetry(experiment, None, Counters())


def make_session(
    telemetry: Telemetry | None = None, environments: int = E, unroll_length: int = 5
) -> Session:
    unroll = UnrollSpec(SPEC.observation, unroll_length, 1, 0, {})
    slots = np.arange(environments, dtype=np.int32)
    return Session(SPEC, slots, unroll, (telemetry or make_telemetry()).sessions, Bounds())


def step(sequence: int, flags: Any, reward: Any = 0.0) -> Step:
    """As it comes off the wire: the frames look into the message, wherever they lie in it."""
    e = len(flags)
    message = Step(
        sequence,
        bytes(12 * e),
        np.broadcast_to(np.float32(reward), (e,)).tobytes(),
        bytes(flags),
    )
    read = read_actor_message(write_actor_message(message))
    assert isinstance(read, Step)
    assert isinstance(read.observation, memoryview)
    return read


def answer(session: Session) -> None:
    session.set_outputs(np.zeros(session.num_envs, np.int32), {}, 0, None)


def play(session: Session, *steps: Step) -> list[SessionUnroll]:
    blocks = []
    for item in steps:
        block = session.receive(item)
        if block is not None:
            blocks.append(block)
        answer(session)
    return blocks


# --- refusals --------------------------------------------------------------------------------


def float32(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


REFUSED_STEPS = {
    "a gap": ({"sequence": 3}, "sequence", "2", "3"),
    "a short observation": ({"observation": bytes(23)}, "observation", "24 bytes", "23 bytes"),
    "a NaN observation": (
        {"observation": float32(0, 0, 0, 0, np.nan, 0)},
        "observation",
        "finite numbers of at most 1e+06",
        "nan at [1, 1]",
    ),
    "rewards of float64": ({"reward": bytes(16)}, "reward", "8 bytes", "16 bytes"),
    "a huge reward": ({"reward": float32(0, -3e38)}, "reward", "at most 1e+06", "e+38 at [1]"),
    "too few flags": ({"flags": b"\0"}, "flags", "2 bytes", "1 bytes"),
    "an unknown flag": ({"flags": b"\0\x10"}, "flags", "below 16", "16"),
    "a negative duration": ({"wait_seconds": -1.0}, "wait_seconds", "0 to 1e+06 seconds", "-1"),
    "both ends": (
        {"flags": bytes([0, TERMINATED | TRUNCATED])},
        "flags",
        "at most one",
        "3 in row 1",
    ),
    "a first row that has ended": (
        {"flags": bytes([FIRST | TERMINATED, 0])},
        "flags",
        "at most one",
        "9 in row 0",
    ),
}


@pytest.mark.parametrize("case", REFUSED_STEPS)
def test_a_refused_step_names_both_sides_and_leaves_nothing(case: str) -> None:
    changes, field, expected, received = REFUSED_STEPS[case]
    telemetry = make_telemetry()
    session = make_session(telemetry)
    play(session, step(0, [FIRST, FIRST]), step(1, [0, 0]))
    before = telemetry.counters.to_json()
    with pytest.raises(InvalidStep) as refusal:
        session.receive(step(2, [0, 0])._replace(**changes))
    assert refusal.value.field == field
    assert expected in refusal.value.expected
    assert received in refusal.value.received
    assert refusal.value.advice
    assert all(part in str(refusal.value) for part in (field, expected, received))
    assert telemetry.counters.to_json() == before
    # The right one still fits: nothing of the wrong one was kept.
    assert session.receive(step(2, [0, 0])) is None


def test_floats_of_packed_observations_are_judged_and_bytes_are_not() -> None:
    packed = PackedSpec.of(
        [Entry("map", ArraySpec((4,), "uint8")), Entry("x", ArraySpec((1,), "float32"))]
    )
    unroll, slots = UnrollSpec(packed, 5, 1, 0, {}), np.arange(E, dtype=np.int32)
    spec = replace(SPEC, observation=packed)
    session = Session(spec, slots, unroll, make_telemetry().sessions, Bounds())
    rows = np.full((E, 8), 255, np.uint8)  # a float of these bytes is NaN
    sent = step(0, [FIRST, FIRST])
    with pytest.raises(InvalidStep, match="finite numbers of at most 1e"):
        session.receive(sent._replace(observation=rows.tobytes()))
    rows[:, 4:] = 0
    assert session.receive(sent._replace(observation=rows.tobytes())) is None


def test_what_is_judged_is_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor's process may write to the memory of its step at any time."""
    memory = np.zeros((E, 3), np.float32)

    def check(field: str, values: Any, largest: float) -> None:
        check_magnitudes(field, values, largest)
        memory[:] = np.nan

    monkeypatch.setattr(session_module, "check_magnitudes", check)
    session = make_session()
    sent = step(0, [FIRST, FIRST])._replace(observation=memory.data.cast("B"))
    assert session.receive(sent) is None
    assert np.isnan(memory).all()
    np.testing.assert_array_equal(session.request().inputs.observation, np.zeros((E, 3)))


def test_first_rows_come_first_and_after_finished_ones() -> None:
    session = make_session()
    with pytest.raises(InvalidStep, match="row 1 marked FIRST"):
        session.receive(step(0, [FIRST, 0]))
    play(session, step(0, [FIRST, FIRST]), step(1, [TERMINATED, TRUNCATED]))
    with pytest.raises(InvalidStep, match="row 0 marked FIRST"):
        session.receive(step(2, [0, FIRST]))
    play(session, step(2, [FIRST, FIRST]))


def hello(**changes: Any) -> wire.Hello:
    fields: dict[str, Any] = {
        "protocol_version": PROTOCOL_VERSION,
        "oldest_protocol_version": OLDEST_PROTOCOL_VERSION,
        "incarnation": 7,
        "actor": "test",
        "environment": SPEC.name,
        "environments": E,
        "observation": wire.ArraySpec(shape=[3], dtype="float32"),
        "actions": 4,
        "action_repeat": 2,
    }
    return wire.Hello(**{**fields, **changes})


def array(dtype: str, *shape: int) -> wire.ArraySpec:
    return wire.ArraySpec(shape=shape, dtype=dtype)


SETTINGS = parse_experiment(
    "{name: x, environment: {id: Toy-v0}, learner: {inference: {max_batch_envs: 64}}, "
    "actor: {envs_per_group: 2}}"
).learner
SPEAKS = f"{OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}"
REFUSED_HELLOS = {
    "a version of the future": (
        {"protocol_version": 9, "oldest_protocol_version": 8},
        "protocol_version",
        SPEAKS,
        "8 to 9",
    ),
    "no version": (
        {"protocol_version": 0, "oldest_protocol_version": 0},
        "protocol_version",
        SPEAKS,
        "0 to 0",
    ),
    "another environment": ({"environment": "Pong"}, "environment", "'Toy-v0'", "'Pong'"),
    "no environments": ({"environments": 0}, "environments", "1 to 64", "0"),
    "a group too large": ({"environments": 65}, "environments", "1 to 64", "65"),
    "no actions": ({"actions": 0}, "actions", "1 to", "0"),
    "no repeat": ({"action_repeat": 0}, "action_repeat", "1 to", "0"),
    "objects": ({"observation": array("object", 3)}, "observation.dtype", "uint8", "'object'"),
    "nonsense": ({"observation": array("float31", 3)}, "observation.dtype", "uint8", "'float31'"),
    "a scalar": ({"observation": array("float32")}, "observation.shape", "one to three", "[]"),
    "a negative size": (
        {"observation": array("float32", 3, -1)},
        "observation.shape",
        "positive",
        "[3, -1]",
    ),
    "four axes": (
        {"observation": array("float32", 1, 1, 1, 3)},
        "observation.shape",
        "three",
        "[1, 1, 1, 3]",
    ),
    "another shape": ({"observation": array("float32", 4)}, "observation", "[3]", "[4]"),
    "another dtype": ({"observation": array("uint8", 3)}, "observation", "float32", "uint8"),
    "more actions": ({"actions": 6}, "actions", "4", "6"),
    "several actions of as many": (
        {"action_kind": wire.ACTION_KIND_MULTI_DISCRETE, "action_sizes": [2, 2]},
        "action",
        "4 actions",
        "2 x 2 actions",
    ),
    "parts that are not all": (
        {"action_kind": wire.ACTION_KIND_MULTI_DISCRETE, "action_sizes": [2, 1]},
        "spaces",
        "sum to `actions`",
        "[2, 1] do not sum to the 4",
    ),
    "another repeat": ({"action_repeat": 4}, "action_repeat", "2", "4"),
    "a network of its own": ({"inference": 1}, "inference", "location learner", "actor"),
}


@pytest.mark.parametrize("case", REFUSED_HELLOS)
def test_a_refused_hello_names_both_sides(case: str) -> None:
    changes, field, expected, received = REFUSED_HELLOS[case]
    with pytest.raises(SpecMismatch) as refusal:
        validate_hello(hello(**changes), SPEC.name, SPEC, SETTINGS)
    assert refusal.value.field == field
    assert expected in refusal.value.expected
    assert received in refusal.value.received
    assert refusal.value.advice


def test_a_group_that_no_message_holds_is_refused_before_its_first_step() -> None:
    """Or the wire would refuse the step without a word of why, and the actor would try again."""
    for shape, environments in (([2**62, 2**62], 1), ([1024, 1024, 3], 22)):
        sent = hello(observation=array("uint8", *shape), environments=environments)
        with pytest.raises(SpecMismatch) as refusal:
            validate_hello(sent, SPEC.name, None, SETTINGS)
        assert refusal.value.field == "observation"
        assert f"{MAX_MESSAGE_BYTES} bytes" in refusal.value.expected
        assert str(environments * math.prod(shape)) in refusal.value.received
    sent = hello(observation=array("uint8", 1024, 1024, 3), environments=21)
    assert validate_hello(sent, SPEC.name, None, SETTINGS).num_envs == 21


def test_a_hello_of_unrolls() -> None:
    settings = SETTINGS.model_copy(
        update={"inference": SETTINGS.inference.model_copy(update={"location": "actor"})}
    )
    length = settings.unroll_length
    for changes, field in (
        ({}, "inference"),
        ({"inference": 1, "unroll_length": length + 1}, "unroll_length"),
        (
            {
                "inference": 1,
                "unroll_length": length,
                "environments": 64,
                "observation": array("uint8", 1024, 1024),
            },
            "observation",  # a step fits a message, and T + 1 of them do not
        ),
    ):
        with pytest.raises(SpecMismatch) as refusal:
            validate_hello(hello(**changes), SPEC.name, None, settings)
        assert refusal.value.field == field
    sent = hello(inference=1, unroll_length=length)
    assert validate_hello(sent, SPEC.name, SPEC, settings).num_envs == E


def test_versions_are_negotiated() -> None:
    for theirs, oldest, spoken in ((1, 1, 1), (9, 1, PROTOCOL_VERSION)):
        sent = hello(protocol_version=theirs, oldest_protocol_version=oldest)
        assert validate_hello(sent, SPEC.name, SPEC, SETTINGS).protocol_version == spoken


def test_the_first_hello_says_what_the_environment_is() -> None:
    handshake = validate_hello(hello(), SPEC.name, None, SETTINGS)
    assert handshake.spec == SPEC
    assert (handshake.num_envs, handshake.incarnation, handshake.actor) == (E, 7, "test")


# --- accounts --------------------------------------------------------------------------------


@pytest.mark.parametrize("environments", [1, 5])
def test_episode_returns_of_interleaved_episodes(environments: int) -> None:
    """Against a list of rewards an environment, kept by hand."""
    random = np.random.default_rng(1)
    telemetry = make_telemetry()
    session = make_session(telemetry, environments)
    rewards: list[list[float]] = [[] for _ in range(environments)]
    returns, lengths, abandoned = [], [], 0
    ended = np.ones(environments, bool)
    for sequence in range(300 // environments):
        crashed = random.random(environments) < 0.1 if sequence else ended
        first = ended | crashed
        chance = np.where(first, 1, random.random(environments))
        flags = np.where(first, FIRST, 0) + np.where(chance < 0.15, TERMINATED, 0)
        flags += np.where((chance >= 0.15) & (chance < 0.3), TRUNCATED, 0)
        flags += np.where(~first & (random.random(environments) < 0.2), LIFE_LOST, 0)
        reward = random.normal(size=environments).astype(np.float32)
        for i in range(environments):
            if first[i]:
                abandoned += not ended[i]
                rewards[i] = []
                reward[i] = 0
            else:
                rewards[i].append(float(reward[i]))
        ended = chance < 0.3
        for i in np.flatnonzero(ended):
            returns.append(sum(rewards[i]))
            lengths.append(len(rewards[i]))
        play(session, step(sequence, flags.tolist(), reward))
    assert telemetry.counters.episodes == len(returns) > 20
    np.testing.assert_allclose(telemetry.sessions.recent_returns.values(), returns, atol=1e-5)
    np.testing.assert_array_equal(telemetry.sessions.recent_lengths.values(), lengths)
    assert telemetry.counters.abandoned_episodes == abandoned > 0
    session.close()
    assert telemetry.counters.abandoned_episodes == abandoned + int((~ended).sum())


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 11, 13])
def test_every_frame_is_in_a_block_or_discarded(rows: int) -> None:
    random = np.random.default_rng(rows)
    telemetry = make_telemetry()
    session = make_session(telemetry)
    blocks, first, frames = [], np.ones(E, bool), 0
    for sequence in range(rows):
        frames += int((~first).sum()) * SPEC.action_repeat
        ended = ~first & (random.random(E) < 0.3)
        flags = np.where(first, FIRST, np.where(ended, TERMINATED, 0))
        blocks += play(session, step(sequence, flags.tolist()))
        first = ended
    session.close()
    counters = telemetry.counters
    in_blocks = sum(block.steps for block in blocks) * SPEC.action_repeat
    assert counters.env_frames == frames == in_blocks + counters.discarded_frames


def test_a_session_that_never_stepped_leaves_no_trace() -> None:
    telemetry = make_telemetry()
    make_session(telemetry).close()
    assert telemetry.counters.abandoned_episodes == telemetry.counters.discarded_frames == 0


# --- slots -----------------------------------------------------------------------------------


def test_slots_are_leased_lowest_first_and_never_twice() -> None:
    table = SlotAllocator(8)
    first, second = table.allocate(3), table.allocate(4)
    np.testing.assert_array_equal(np.concatenate([first, second]), range(7))
    assert first.dtype == np.int32
    with pytest.raises(NoCapacity) as refusal:
        table.allocate(2)
    assert refusal.value.field == "slots"
    assert "at most 1 environment (8 slots in all)" in refusal.value.expected
    assert refusal.value.received == "2 environments"
    assert table.available == 1  # a refusal takes none
    table.free(first)
    np.testing.assert_array_equal(table.allocate(4), [0, 1, 2, 7])
    assert table.available == 0
