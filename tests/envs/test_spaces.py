"""Spaces of Gymnasium: what is sent of them, and what comes back."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from seedbed.cli.main import main
from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env
from seedbed.envs.failures import EnvironmentFault
from seedbed.envs.probe import EnvironmentProbe
from seedbed.envs.spaces import ActionWriter, ObservationReader
from seedbed.packed import PackedSpec, random_actions, read_environment_spec
from seedbed.rpc.spaces import observation_from_wire, space_from_wire, spaces_to_wire
from seedbed.spec import ActionSpec, ArraySpec, EnvironmentSpec, TimeStep, pack_flags
from seedbed.v1 import inference_pb2 as wire

NESTED = Dict(
    {
        "camera": Box(0, 255, (4, 5, 3), np.uint8),
        "body": Dict({"joints": Box(-9, 9, (2, 3), np.float64), "gear": Discrete(3, start=-1)}),
        "pair": Tuple((MultiBinary(4), MultiDiscrete([2, 5]))),
        "mission": Text(20),
    }
)


def test_every_entry_comes_back_as_it_was() -> None:
    reader = ObservationReader(NESTED)
    assert isinstance(reader.spec, PackedSpec)
    names = [entry.name for entry in reader.spec.entries]
    # Gymnasium orders the keys of a dictionary.
    assert names == ["body.gear", "body.joints", "camera", "pair.0", "pair.1"]
    NESTED.seed(3)
    for _ in range(5):
        seen = NESTED.sample()
        row = reader.read(seen, {})
        assert (row.shape, row.dtype) == (reader.spec.shape, np.uint8)
        found = reader.spec.unpack(row)
        np.testing.assert_array_equal(found["camera"], seen["camera"])
        np.testing.assert_array_equal(
            found["body.joints"], seen["body"]["joints"].astype(np.float32)
        )
        assert found["body.gear"] == seen["body"]["gear"] + 1, "categories begin at 0"
        np.testing.assert_array_equal(found["pair.0"], seen["pair"][0])
        np.testing.assert_array_equal(found["pair.1"], seen["pair"][1])


def test_the_dictionary_of_minigrid_is_sent_without_its_text() -> None:
    env = gymnasium.make("minigrid:MiniGrid-Empty-5x5-v0")
    reader = ObservationReader(env.observation_space)
    assert str(reader.spec) == "{direction int32[] below 4, image uint8[7, 7, 3]}"
    seen, info = env.reset(seed=0)
    np.testing.assert_array_equal(
        reader.spec.unpack(reader.read(seen, info))["image"], seen["image"]
    )


@pytest.mark.parametrize("shape", [(3,), (5, 7), (6, 4, 2)])
def test_eight_numbers_of_a_multi_binary_share_a_byte(shape: tuple[int, ...]) -> None:
    space = MultiBinary(shape, seed=1)
    reader = ObservationReader(Dict({"bits": space, "next": Box(0, 255, (2,), np.uint8)}))
    assert isinstance(reader.spec, PackedSpec)
    bits = np.prod(shape)
    assert reader.spec.shape == (-(-bits // 8) + 2,)
    seen = [space.sample() for _ in range(3)]
    rows = np.stack(
        [reader.read({"bits": b, "next": np.array([7, 9], np.uint8)}, {}) for b in seen]
    )
    np.testing.assert_array_equal(
        rows[:, :-2], np.packbits(np.stack(seen).reshape(3, -1), axis=-1), "the first bit is high"
    )
    found = reader.spec.unpack(rows)
    np.testing.assert_array_equal(found["bits"], seen)
    assert found["bits"].dtype == np.bool_
    np.testing.assert_array_equal(found["next"], [[7, 9]] * 3)


def test_a_discrete_observation_is_an_entry() -> None:
    reader = ObservationReader(Discrete(7))
    assert str(reader.spec) == "{observation int32[] below 7}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"camera": np.zeros((4, 5, 2), np.uint8)},
            "entry camera is uint8[4, 5, 2]",
        ),
        ({"body": {"gear": 0}}, "no entry body.joints"),
        ({"body": {"gear": 2, "joints": np.zeros((2, 3))}}, "gear is 2, which is none of the 3"),
        ({"body": {"gear": 0, "joints": np.full((2, 3), np.nan)}}, "joints holds NaN"),
    ],
)
def test_what_does_not_fit_names_the_entry(change: dict[str, Any], words: str) -> None:
    reader = ObservationReader(NESTED)
    with pytest.raises(EnvironmentFault) as fault:
        reader.read({**NESTED.sample(), **change}, {})
    assert words in str(fault.value)


def test_a_mask_of_info_is_an_entry() -> None:
    reader = ObservationReader(Box(0, 1, (2,)), masks=3)
    assert isinstance(reader.spec, PackedSpec)
    row = reader.read(np.zeros(2, np.float32), {"action_mask": np.array([0, 1, 1], np.int8)})
    assert reader.spec.unpack(row)["action_mask"].tolist() == [0, 1, 1]
    with pytest.raises(EnvironmentFault, match=r"no 'action_mask', and environment.action_mask is"):
        reader.read(np.zeros(2, np.float32), {"lives": 3})
    with pytest.raises(EnvironmentFault, match=r"int64\[2\], and there are 3 actions"):
        reader.read(np.zeros(2, np.float32), {"action_mask": np.array([0, 1])})


@pytest.mark.parametrize(
    "space",
    [
        Box(0, 1, (3,), np.int8),  # as most environments have it
        Box(0, 1, (3,), np.float32),
        Box(0, 1, (3,), bool),
        MultiBinary(3),
        MultiDiscrete([2, 2, 2]),
    ],
)
def test_a_mask_is_a_byte_for_each_action_of_whatever_dtype(space: Any) -> None:
    reader = ObservationReader(Dict({"action_mask": space, "x": Discrete(2)}))
    assert str(reader.spec) == "{action_mask uint8[3], x int32[] below 2}"
    row = reader.read({"action_mask": np.array([0, 1, 1], space.dtype), "x": 0}, {})
    assert row[:3].tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("space", "chosen", "wanted"),
    [
        (Discrete(4, start=-2), 3, 1),
        (MultiDiscrete([3, 4], start=[1, -1]), [2, 0], [3, -1]),
        (MultiBinary((2, 2)), [1, 0, 0, 1], [[1, 0], [0, 1]]),
        (Box(np.array([-2, 0]), np.array([2, 10]), dtype=np.float32), [-1.0, 0.5], [-2, 7.5]),
        (Box(-1, 3, (1, 2), np.float64), [1.0, -0.5], [[3, 0]]),
    ],
)
def test_an_action_is_one_of_the_space(space: Any, chosen: Any, wanted: Any) -> None:
    writer = ActionWriter(space)
    action = writer.write(chosen)
    np.testing.assert_allclose(action, wanted)
    assert space.contains(action)


def test_a_hello_carries_the_spaces() -> None:
    spec = EnvironmentSpec(
        "x", ObservationReader(NESTED, masks=7).spec, 7, 1, ActionSpec("multi_discrete", (3, 4))
    )
    assert read_environment_spec(spec.to_json()) == spec
    hello = wire.Hello(
        observation=wire.ArraySpec(shape=spec.observation.shape, dtype="uint8"),
        actions=7,
        **spaces_to_wire(spec),
    )
    assert space_from_wire(hello) == spec.space
    assert observation_from_wire(hello) == spec.observation
    plain = EnvironmentSpec("x", ArraySpec((3,), "float32"), 2, 1)
    assert spaces_to_wire(plain) == {}


@pytest.mark.parametrize(
    ("kind", "sizes", "action", "words"),
    [
        ("discrete", (3,), [2, 3], "action 3 for environment 1 is out of range: it takes 0 .. 2"),
        ("discrete", (3,), [-1, 2], "action -1 for environment 0 is out of range: it takes 0 .. 2"),
        ("discrete", (3,), [2, 0], None),
        ("discrete", (3,), [1] * 99 + [3], "action 3 for environment 99 is out of range"),
        ("discrete", (3,), [1] * 99 + [2], None),
        ("multi_discrete", (4, 2), [[3, 1], [0, 2]], "action 2 for environment 1 (number 1)"),
        ("multi_discrete", (4, 2), [[-1, 0], [0, 0]], "action -1 for environment 0 (number 0)"),
        ("continuous", (2,), [[-1, 1], [0, 1.5]], "action 1.5 for environment 1 (number 1)"),
        ("continuous", (2,), [[0, np.nan], [0, 0]], "action nan for environment 0 (number 1)"),
        ("multi_discrete", (4, 2), [[3, 1], [0, 0]], None),
        ("continuous", (2,), [[-1, 1], [0.5, 0]], None),
    ],
)
def test_an_action_out_of_the_space_is_named(
    kind: Any, sizes: tuple[int, ...], action: Any, words: str | None
) -> None:
    space = ActionSpec(kind, sizes)
    data = np.array(action, space.array.dtype).tobytes()
    found = space.wrong(space.read(data, len(action)))
    assert (found is None) if words is None else (found is not None and words in found)


@pytest.mark.parametrize("kind", ["discrete", "multi_discrete"])
def test_actions_of_another_number_of_environments_are_refused(kind: Any) -> None:
    space = ActionSpec(kind, (3,))
    data = np.zeros((2, *space.array.shape), np.int32).tobytes()
    assert space.read(data, 2).shape == (2, *space.array.shape)
    for num_envs in (1, 3):
        with pytest.raises(ValueError, match="cannot reshape"):
            space.read(data, num_envs)


@pytest.mark.parametrize("chance", [0.0, 0.05, 0.5])
def test_flags_are_bits_of_each_environment(chance: float) -> None:
    random = np.random.default_rng(3)
    for environments in (1, 2, 33):
        for _ in range(50):
            marks = random.random((4, environments)) < chance
            observation, reward = np.zeros((environments, 1)), np.zeros(environments, np.float32)
            packed = pack_flags(TimeStep(observation, reward, *marks))
            expected = [
                sum(int(marks[bit, i]) << bit for bit in range(4)) for i in range(environments)
            ]
            assert list(packed) == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.action_sizes.append(1), "do not sum to the 7"),
        (lambda h: setattr(h, "action_kind", 9), "action_kind 9 is unknown"),
        (lambda h: setattr(h, "action_kind", 2), "are not one number"),
        (lambda h: h.entries.pop(), "in a row of uint8"),
        (lambda h: setattr(h.entries[0], "name", h.entries[1].name), "each once"),
        (lambda h: setattr(h.entries[0].array, "dtype", "object"), "object[] is no array"),
        (lambda h: setattr(h.entries[0], "categories", 2**20), "1048576 categories"),
        (lambda h: setattr(h.entries[1], "categories", 2), "categories of float32"),
        (lambda h: h.entries[1].array.shape.append(-3), "is no array"),
        (
            lambda h: setattr(h.entries[2], "name", "action_mask"),
            "uint8[4, 5, 3] and not uint8[7]",
        ),
        (lambda h: [h.entries.append(h.entries[0]) for _ in range(300)], "at most 64"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused(change: Any, words: str) -> None:
    spec = EnvironmentSpec(
        "x", ObservationReader(NESTED).spec, 7, 1, ActionSpec("multi_discrete", (3, 4))
    )
    hello = wire.Hello(
        observation=wire.ArraySpec(shape=spec.observation.shape, dtype="uint8"),
        actions=7,
        **spaces_to_wire(spec),
    )
    change(hello)
    with pytest.raises(ValueError, match=re.escape(words)):
        both(hello)


def both(hello: wire.Hello) -> None:
    space_from_wire(hello)
    observation_from_wire(hello)


@pytest.mark.parametrize("kwargs", [{}, {"parts": True}])
def test_actions_of_check_and_probe_are_valid_ones(kwargs: dict[str, Any]) -> None:
    """An environment may refuse the others, and no policy would choose them."""
    environment = Environment(id="tests.support.toy_environments:OnlyValid", kwargs=kwargs)
    env = make_vector_env(environment, 4, 1, range(4), max_failures=1)
    random = np.random.default_rng(0)
    time_step, chosen = env.reset(), []
    for _ in range(100):
        action = random_actions(env.spec, time_step.observation, random)
        assert (action.shape, action.dtype) == ((4, *env.spec.action.array.shape), np.int32)
        chosen.append(action)
        time_step = env.step(action)
    assert len(np.unique(np.array(chosen))) > 2, "not one of them alone"
    probe = EnvironmentProbe(environment)
    assert probe.wait() == env.spec, probe.failure
    assert main(["check", "env", environment.id, "--seconds", "0.2", "--num-envs", "2"]) == 0
