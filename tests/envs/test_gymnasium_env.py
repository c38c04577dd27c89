"""Gymnasium environments as lock-step groups: conversion, refusals, failures."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, Text

from seedbed.config.environment import Environment
from seedbed.envs import make_vector_env
from seedbed.envs.gymnasium_env import GymnasiumVectorEnv
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import VectorEnv
from tests.support import toy_environments
from tests.support.toy_environments import Faulty
from tests.support.vector_env_compliance import VectorEnvCompliance


def environment(name: str, **kwargs: Any) -> Environment:
    return Environment(id=f"tests.support.toy_environments:{name}", kwargs=kwargs)


def group_of(name: str, environments: int = 1, **kwargs: Any) -> GymnasiumVectorEnv:
    return GymnasiumVectorEnv(environment(name, **kwargs), range(environments))


def zeros(environments: int = 1) -> Any:
    return np.zeros(environments, np.int32)


class TestCounter(VectorEnvCompliance):
    def make(self, seeds: Sequence[int]) -> VectorEnv:
        return make_vector_env(environment("Counter"), len(seeds), 1, seeds)


class TestCartPole(VectorEnvCompliance):
    def make(self, seeds: Sequence[int]) -> VectorEnv:
        return make_vector_env(Environment(id="CartPole-v1"), len(seeds), 1, seeds)


def test_rows_are_those_of_the_environment_stepped_by_hand() -> None:
    group = group_of("Counter", 2, length=2)
    plain = [toy_environments.Counter(length=2) for _ in range(2)]
    frame = group.reset()
    for i, env in enumerate(plain):
        np.testing.assert_array_equal(frame.observation[i], env.reset(seed=i)[0].astype(np.float32))
    done = [False, False]
    ends = []
    for k in range(40):
        frame = group.step(np.array([k % 5, (k + 1) % 5], np.int32))
        for i, env in enumerate(plain):
            if done[i]:
                expected, reward, terminated, truncated = env.reset()[0], 0.0, False, False
            else:
                expected, reward, terminated, truncated, _ = env.step((k + i) % 5)
            np.testing.assert_array_equal(frame.observation[i], expected.astype(np.float32))
            assert frame.reward[i] == reward
            assert frame.first[i] == done[i]
            assert frame.terminated[i] == terminated
            # Both at once is a terminated episode: there is nothing to bootstrap from.
            assert frame.truncated[i] == (truncated and not terminated)
            done[i] = terminated or truncated
            ends.append((terminated, truncated))
    assert {(True, False), (False, True), (True, True)} <= set(ends)


def test_actions_start_where_the_space_starts() -> None:
    group = group_of("Counter", start=-2, length=100)
    group.reset()
    seen = [group.step(np.array([a], np.int32)).observation[0, 3] for a in range(5)]
    assert seen == [-2, -1, 0, 1, 2]


def test_a_lost_life_is_information_only() -> None:
    group = group_of("Counter", length=6, lives=True)
    group.reset()
    frames = [group.step(zeros()) for _ in range(8)]
    assert [bool(f.life_lost[0]) for f in frames] == [0, 1, 0, 1, 0, 1, 0, 0]
    assert [bool(f.first[0]) for f in frames] == [0, 0, 0, 0, 0, 0, 1, 0]


def test_environments_get_their_seeds() -> None:
    group = group_of("Counter", 3)
    draws = [toy_environments.Counter().reset(seed=i)[0][2] for i in range(3)]
    np.testing.assert_allclose(group.reset().observation[:, 2], draws, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "wire"),
    [
        ("uint8", "int8"),  # a picture of bits
        ("bool", "int8"),
        ("float32", "float32"),
        ("float64", "float32"),
        ("int16", "float32"),
    ],
)
def test_dtypes_on_the_wire(monkeypatch: pytest.MonkeyPatch, dtype: str, wire: str) -> None:
    space = Box(0, 1, (2, 3), dtype)
    made = toy_environments.Spaced(space, Discrete(2), repeat=4)
    monkeypatch.setattr(toy_environments, "made", lambda: made, raising=False)
    group = group_of("made")
    assert group.spec.observation.dtype == wire
    assert group.spec.observation.shape == (2, 3)
    assert group.spec.action_repeat == 4
    assert group.reset().observation.dtype == np.dtype(wire)


@pytest.mark.parametrize(
    ("observation", "action", "repeat", "text"),
    [
        (
            Dict({"a": Graph(Discrete(3), None)}),
            Discrete(2),
            None,
            r"entry a is Graph.*drop or fla",
        ),
        (Dict({"m": Text(9)}), Discrete(2), None, r"Dict.*which has nothing to send"),
        (Box(0, 1, (3,)), Box(-np.inf, 1, (2,)), None, r"no bounds to scale to.*TransformAction"),
        (Box(0, 1, (3,)), Dict({"a": Discrete(2)}), None, r"Dict.*only Discrete, MultiDiscrete"),
        (
            Dict({"x": Discrete(2), "action_mask": Box(0, 1, (3,), np.int8)}),
            Discrete(2),
            None,
            r"action_mask is .*\[3\].*2 actions: a mask has one number",
        ),
        (Box(0, 1, (0, 3)), Discrete(2), None, r"\[0, 3\] holds no number"),
        (Box(0, 1, (2, 2, 2, 2)), Discrete(2), None, r"\[2, 2, 2, 2\] has 4 axes"),
        (Box(0, 1, ()), Discrete(2), None, r"\[\] has 0 axes"),
        (Box(0, 1, (3,)), Discrete(2), 2.5, r"action_repeat is 2.5"),
    ],
)
def test_spaces_that_do_not_fit_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, observation: Any, action: Any, repeat: Any, text: str
) -> None:
    made = toy_environments.Spaced(observation, action, repeat)
    monkeypatch.setattr(toy_environments, "made", lambda: made, raising=False)
    with pytest.raises(SeedbedError, match=text) as refused:
        group_of("made")
    assert refused.value.code == ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_module_at_all:make", "importing 'no_such_module_at_all' failed.*PYTHONPATH"),
        ("tests.support.toy_environments:nothing", "has no 'nothing'"),
        ("tests.support.toy_environments:ENVIRONMENT", "int, which cannot be called"),
        (
            "tests.support.toy_environments:not_an_environment",
            "returned a builtins.list, not a gymnasium.Env",
        ),
        ("CartPool-v1", "CartPool-v1.*cannot be made.*CartPole"),
    ],
)
def test_an_id_that_leads_nowhere_says_so(name: str, text: str) -> None:
    with pytest.raises(SeedbedError, match=text) as refused:
        make_vector_env(Environment(id=name), 1, 1, [0])
    assert refused.value.code == ExitCode.ENVIRONMENT


def test_wrong_kwargs_name_the_environment() -> None:
    with pytest.raises(SeedbedError, match=r"Counter.*cannot be made.*colour"):
        group_of("Counter", colour="red")


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("raise", "step_raised"),
        ("nan reward", "not_finite"),
        ("huge reward", "not_finite"),
        ("nan observation", "not_finite"),
        ("shape", "wrong_shape"),
        ("dtype", "wrong_shape"),
        ("four values", "wrong_shape"),
        ("close raises", "step_raised"),
    ],
)
def test_a_failed_environment_alone_is_made_anew(
    fault: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    Faulty.made.clear()
    group = group_of("Faulty", 2, fault=fault)
    Faulty.made[0].fault = "none"  # environment 0 is well
    group.reset()
    group.step(zeros(2))
    with caplog.at_level(logging.WARNING):
        frame = group.step(zeros(2))
    assert group.failures == {cause: 1}
    assert frame.first.tolist() == [False, True]
    assert frame.observation[:, 1].tolist() == [2, 0]
    assert frame.reward.tolist() == [2, 0]
    assert not (frame.terminated | frame.truncated).any()
    assert [env.closed for env in Faulty.made] == [False, True, False]
    assert Faulty.made[2].seeds != Faulty.made[1].seeds
    assert "environment 1" in caplog.text
    assert "Traceback" in caplog.text
    assert group.step(zeros(2)).first.tolist() == [False, False]


def test_an_environment_that_cannot_be_made_anew_is_tried_again() -> None:
    Faulty.made.clear()
    group = group_of("Faulty", fault="raise in make")
    group.reset()
    group.step(zeros())
    assert group.step(zeros()).first.all()
    assert sum(group.failures.values()) == 2
    assert len(Faulty.made) == 3


@pytest.mark.parametrize("fault", ["raise", "raise in reset"])
def test_too_many_failures_end_the_group(fault: str) -> None:
    group = GymnasiumVectorEnv(environment("Faulty", fault=fault), [5], max_failures=3)

    def run() -> None:
        group.reset()
        for _ in range(100):
            group.step(zeros())

    with pytest.raises(SeedbedError, match=r"3 failures .*limit 3.* the simulator") as ended:
        run()
    assert ended.value.code == ExitCode.ENVIRONMENT
    assert sum(group.failures.values()) == 3


def test_old_failures_are_forgotten() -> None:
    now = [0.0]
    group = GymnasiumVectorEnv(environment("Faulty"), [5], max_failures=2, clock=lambda: now[0])
    group.reset()
    for _ in range(10):
        now[0] += 301.0  # two steps a failure: 602 s from one to the next
        group.step(zeros())
    assert sum(group.failures.values()) == 5


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("shape", r"float64\[3\], but its space says float64\[4\]"),
        ("dtype", r"complex128\[4\], but its space says float64\[4\]"),
    ],
)
def test_an_observation_against_its_space_is_named_in_the_end(fault: str, text: str) -> None:
    group = GymnasiumVectorEnv(environment("Faulty", fault=fault), [0], max_failures=1)
    group.reset()
    group.step(zeros())
    with pytest.raises(SeedbedError, match=text):
        group.step(zeros())


def test_closing_closes_every_environment() -> None:
    Faulty.made.clear()
    group = group_of("Faulty", 3, fault="none")
    group.close()
    assert [env.closed for env in Faulty.made] == [True] * 3


def test_a_gymnasium_id_with_a_module_is_left_to_gymnasium() -> None:
    gymnasium.register("ToyCounter-v0", entry_point=toy_environments.Counter)
    group = make_vector_env(
        Environment(id="tests.support.toy_environments:ToyCounter-v0"), 1, 1, [0]
    )
    assert group.spec.actions == 5


def test_an_environment_that_hangs_ends_the_process() -> None:
    code = (
        "import numpy as np\n"
        "from seedbed.envs.gymnasium_env import GymnasiumVectorEnv\n"
        "from seedbed.config.environment import Environment\n"
        "stuck = Environment(id='tests.support.toy_environments:Stuck')\n"
        "group = GymnasiumVectorEnv(stuck, [0], timeout_s=0.2)\n"
        "group.reset()\n"
        "for _ in range(3): group.step(np.zeros(1, np.int32))\n"
    )
    root = Path(__file__).parents[2]
    path = str(root)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == ExitCode.ENVIRONMENT
    said = "step of environment 0 of tests.support.toy_environments:Stuck has not come back"
    assert said in done.stderr
    assert "(actor.environment_timeout_s is 0.2)" in done.stderr
