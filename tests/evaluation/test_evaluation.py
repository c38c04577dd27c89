"""Evaluation: which episodes count, and that the policy plays as it was trained to."""

from __future__ import annotations

import os
import statistics as reference
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from keras import ops

from seedbed.agents.protocol import ActInputs
from seedbed.backends.protocol import Backend
from seedbed.config import Experiment, parse_experiment
from seedbed.envs import make_vector_env
from seedbed.evaluation.atari_protocol import apply_atari_protocol, deviations
from seedbed.evaluation.episodes import (
    Episode,
    EpisodeCollector,
    EvaluationSettings,
    evaluate,
    human_normalised,
    make_evaluation_env,
    return_statistics,
)
from seedbed.evaluation.trained_policy import PolicyRunner, TrainedPolicy
from seedbed.factory import build_agent
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.limits import SHARE
from seedbed.spec import ArraySpec, EnvironmentSpec, TimeStep
from tests.support.pattern_env import NAME, PatternVectorEnv
from tests.support.processes import children

pytestmark = pytest.mark.backends


class Scripted:
    """Rows of episodes of given lengths, whose returns tell which one it was."""

    def __init__(self, lengths: list[list[int]]) -> None:
        self._lengths = lengths  # of the episodes of each environment
        self._at = [(0, 0) for _ in lengths]  # episode, steps in it
        self.starts: list[tuple[int, int, int]] = []  # time, environment, episode
        self._time = 0

    def next(self) -> TimeStep:
        e = len(self._lengths)
        first, over = np.zeros(e, bool), np.zeros(e, bool)
        reward = np.zeros(e, np.float32)
        for i, (episode, t) in enumerate(self._at):
            length = self._lengths[i][episode]
            first[i], over[i] = t == 0, t == length
            reward[i] = 0 if t == 0 else self.total(i, episode) / length
            if t == 0:
                self.starts.append((self._time, i, episode))
            self._at[i] = (episode + 1, 0) if t == length else (episode, t + 1)
        self._time += 1
        none = np.zeros(e, bool)
        # What comes with a first row is not part of any episode.
        return TimeStep(np.zeros((e, 1)), reward + 7 * first, over, none, none.copy(), first)

    @staticmethod
    def total(i: int, episode: int) -> int:
        return 100 * i + episode + 1


def test_the_first_n_that_start_count_and_not_the_first_n_that_end() -> None:
    generator = np.random.default_rng(0)
    # Environment 0 plays long episodes, the others short ones.
    lengths = [[90] * 60] + [generator.integers(1, 9, 60).tolist() for _ in range(3)]
    script, collector = Scripted(lengths), EpisodeCollector(4, 30, max_steps=1000)
    while not collector.done:
        collector.on_step(script.next())
    wanted = [
        (script.total(i, episode), lengths[i][episode]) for _, i, episode in script.starts[:30]
    ]
    got = [collector.ended[number] for number in range(30)]
    assert [(round(e.total), e.length) for e in got] == wanted
    assert not any(e.cut for e in got)
    assert wanted[0][1] == 90, "the long episode that was under way counts"
    assert len(script.starts) > 40, "others ended meanwhile, and do not count"


def test_an_environment_that_raised_plays_its_number_again() -> None:
    collector = EpisodeCollector(1, 1, max_steps=1000)
    row = np.array([True])
    for first, reward, over in ((1, 0, 0), (0, 5, 0), (1, 0, 0), (0, 2, 0), (0, 3, 1)):
        collector.on_step(
            TimeStep(np.zeros((1, 1)), np.array([reward], np.float32), row & bool(over), ~row, ~row,
                  row & bool(first))
        )  # fmt: skip
    assert collector.ended == {0: Episode(5.0, 2, False)}
    assert collector.restarted == 1


def make_policy(backend: Backend, spec: EnvironmentSpec, experiment: Experiment) -> TrainedPolicy:
    """A policy with weights that are anything but what a new network has."""
    agent = build_agent(experiment, spec)
    generator = np.random.default_rng(3)
    for variable in agent.model.trainable_variables:
        variable.assign(generator.normal(0, 0.5, variable.shape).astype(np.float32))
    return TrainedPolicy(backend, agent, spec, experiment.learner.frame_stack)


def test_the_runner_acts_as_a_policy_that_sees_each_episode_alone(backend: Backend) -> None:
    """Over ends, cuts and crashes, with an LSTM and a stack; one environment and row at a time."""
    experiment = parse_experiment(
        f"name: x\nenvironment: {{id: '{NAME}'}}\nagent: vtrace\n"
        "learner: {network: mlp, lstm_units: 8, frame_stack: 3}"
    )
    e = 2
    group = PatternVectorEnv(e, 0, (6,), "float32")
    policy = make_policy(backend, group.spec, experiment)
    runner = PolicyRunner(policy, e, seed=0, greedy=True)
    params = [ops.convert_to_tensor(v) for v in policy.agent.model.trainable_variables]
    frames: list[list[Any]] = [[] for _ in range(e)]
    state = np.zeros((e, policy.agent.body.state_size), np.float32)
    action = np.full(e, -1)
    frame, firsts, margins = group.reset(), 0, []
    for _ in range(25):
        got = runner.act(frame)
        for i in range(e):
            if frame.first[i]:
                frames[i], state[i], action[i], firsts = [], 0, -1, firsts + 1
            frames[i].append(frame.observation[i])
            stack = [np.zeros(6, np.float32)] * 3 + frames[i]
            outputs = policy.agent.act(
                params,
                ActInputs(
                    observation=ops.convert_to_tensor(np.concatenate(stack[-3:])[None]),
                    previous_action=ops.convert_to_tensor(action[i : i + 1].astype(np.int32)),
                    previous_reward=ops.convert_to_tensor(
                        np.where(frame.first, 0, frame.reward)[i : i + 1].astype(np.float32)
                    ),
                    first=ops.convert_to_tensor(frame.first[i : i + 1]),
                    slot=ops.zeros(1, "int32"),
                    noise=ops.zeros((1, 1)),
                ),
                ops.convert_to_tensor(state[i : i + 1]),
                greedy=True,
            )
            logits = ops.convert_to_numpy(outputs.behaviour["logits"])[0]
            margins.append(float(np.diff(np.sort(logits)[-2:])[0]))
            if margins[-1] > 1e-4:  # else rounding may choose
                assert got[i] == logits.argmax()
            state[i] = ops.convert_to_numpy(outputs.state)[0]
        action = got.copy()
        frame = group.step(got)
    assert firsts > e + 2, "no episode ended"
    assert np.mean(np.array(margins) > 1e-4) > 0.9, "the test compared next to nothing"


class Endless(gymnasium.Env[Any, Any]):
    """Never ends. The observation is a number drawn at the reset; each step earns it."""

    def __init__(self) -> None:
        self.observation_space = Box(-1, 1, (1,), np.float32)
        self.action_space = Discrete(2)
        self.drawn = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.drawn = self.np_random.random()
        return np.array([self.drawn], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([self.drawn], np.float32), self.drawn, False, False, {}


ENDLESS = parse_experiment(
    f"name: x\nenvironment: {{id: '{__name__}:Endless'}}\nlearner: {{network: mlp, frame_stack: 1}}"
)
ENDLESS_SPEC = EnvironmentSpec(ENDLESS.environment.id, ArraySpec((1,), "float32"), 2, 1)


def test_episodes_without_an_end_are_cut_and_other_ones_are_played(backend: Backend) -> None:
    policy = make_policy(backend, ENDLESS_SPEC, ENDLESS)
    settings = EvaluationSettings(episodes=5, greedy=False, num_envs=2, seed=1, max_steps=7)
    result = evaluate(policy, ENDLESS, settings)
    assert (result["episodes"], result["cut_episodes"], result["mean_length"]) == (5, 5, 7.0)
    assert len(set(result["returns"])) == 5, "the same episode was played twice"
    again = evaluate(policy, ENDLESS, settings)
    assert again["returns"] == result["returns"]


def test_another_environment_is_refused_with_both_specs(backend: Backend) -> None:
    spec = EnvironmentSpec(ENDLESS.environment.id, ArraySpec((1,), "float32"), 3, 1)
    policy = make_policy(backend, spec, ENDLESS)
    with pytest.raises(SeedbedError, match=r"actions=3.*actions=2"):
        evaluate(policy, ENDLESS, EvaluationSettings(1, True, 1, 0, 10))


@pytest.mark.parametrize(
    ("cores", "num_envs", "processes"),
    [("1.5", 3, 0), ("2.5", 3, 2), ("8", 3, 3), ("8", 6, 4), ("8", 1, 0)],
)
def test_atari_evaluations_play_on_several_cores(
    cores: str, num_envs: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARE, f"{cores},4e9")
    environment = "{id: 'atari:Pong', atari: {preprocessing: exact}}"
    experiment = parse_experiment(f"name: x\nenvironment: {environment}\nseed: 3")
    one = make_vector_env(experiment.environment, 1, 1, [0])
    one.close()
    policy: Any = SimpleNamespace(spec=one.spec)
    env = make_evaluation_env(policy, experiment, num_envs, 3, 0)
    started = children(os.getpid())
    env.close()
    assert len(started) == processes


def test_statistics_are_those_of_the_text_book() -> None:
    returns = [3.0, -1.0, 10.0, 4.0]
    got = return_statistics([Episode(total, length, False) for length, total in enumerate(returns)])
    assert got["mean"] == reference.mean(returns)
    assert got["median"] == reference.median(returns)
    assert got["standard_error"] == pytest.approx(reference.stdev(returns) / 2)
    assert (got["min"], got["max"], got["mean_length"]) == (-1.0, 10.0, 1.5)
    assert return_statistics([Episode(1.0, 1, False)])["standard_error"] is None


def test_atari_is_played_by_table_9_whatever_the_training_did() -> None:
    trained = parse_experiment(
        "name: x\nenvironment: {id: 'atari:Pong', atari: {sticky_action_probability: 0.25, "
        "noop_max: 0, full_action_space: false}}"
    )
    experiment, changed = apply_atari_protocol(trained)
    atari = experiment.environment.atari
    assert (atari.sticky_action_probability, atari.noop_max) == (0.0, 30)
    assert (trained.environment.atari.preprocessing, atari.preprocessing) == ("fast", "exact")
    assert atari.max_frames_per_episode == 108_000
    assert not atari.full_action_space, "the policy has the actions that it was trained with"
    assert len(changed) == 3
    assert "sticky_action_probability is 0.0, though 0.25" in "".join(changed)
    # Pong's random play is -20.7 and a human's 14.6 (Table 10, DQN Zoo).
    episodes = [Episode(20.0, 1, False), Episode(21.0, 1, False)]
    score = human_normalised(experiment.environment, episodes)
    assert score == pytest.approx((20.5 + 20.7) / (14.6 + 20.7))
    assert human_normalised(trained.environment, episodes) is None, "not the protocol"
    assert human_normalised(experiment.environment, [Episode(21.0, 1, True)]) is None, "cut"
    assert human_normalised(ENDLESS.environment, episodes) is None
    small = experiment.environment.model_copy(
        update={"atari": atari.model_copy(update={"height": 42, "frame_skip": 16})}
    )
    assert human_normalised(small, episodes) is None, "other pictures, another game"
    assert deviations(small) == [
        "environment.atari.frame_skip is 16, and 4 in Table 9",
        "environment.atari.height is 42, and 84 in Table 9",
        "environment.atari.full_action_space is False, and True in Table 9",
    ]
