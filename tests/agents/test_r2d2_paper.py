"""The R2D2 experiment that ships against the paper: its network and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from keras import ops

from seedbed.agents.exploration import exploration_table
from seedbed.config import load_experiment
from seedbed.factory import build_agent
from seedbed.networks.dueling import Dueling
from seedbed.spec import ArraySpec, EnvironmentSpec
from tests.support.q_learning import Array

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

ATARI = Path(__file__).parents[2] / "experiments/atari-r2d2.yaml"


def test_dueling_is_equation_9() -> None:
    heads = Dueling(actions=3, units=6)
    x = np.random.default_rng(0).normal(size=(4, 2, 5)).astype(np.float32)
    got = ops.convert_to_numpy(heads(ops.convert_to_tensor(x)))

    def layer(of: Any, given: Array) -> Array:
        kernel, bias = (ops.convert_to_numpy(w) for w in of.get_weights())
        result: Array = given @ kernel + bias
        return result

    value = layer(heads.value, np.maximum(layer(heads.value_hidden, x), 0))
    advantage = layer(heads.advantage, np.maximum(layer(heads.advantage_hidden, x), 0))
    wanted = value + advantage - advantage.mean(-1, keepdims=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.mean(-1), value[..., 0], rtol=1e-4, atol=1e-5)


def test_the_network_of_the_paper() -> None:
    """Section A.3.1, from the experiment that ships: layer by layer, and parameters by hand."""
    experiment = load_experiment(ATARI)
    spec = EnvironmentSpec("atari:Pong", ArraySpec((84, 84), "uint8"), 18, 4)
    agent: Any = build_agent(experiment, spec)
    shapes = [tuple(v.shape) for v in agent.model.trainable_variables]
    features = 7 * 7 * 64  # 84 -> 20 -> 9 -> 7, valid padding
    lstm_inputs = 512 + 18 + 1  # features, one-hot previous action, previous reward
    torso = [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (features, 512)]
    lstm, heads = [(lstm_inputs, 2048), (512, 2048)], [(512, 512), (512, 1), (512, 512), (512, 18)]
    assert sorted(s for s in shapes if len(s) > 1) == sorted(torso + lstm + heads)
    assert agent.model.count_params() == (
        (8 * 8 * 4 + 1) * 32
        + (4 * 4 * 32 + 1) * 64
        + (3 * 3 * 64 + 1) * 64
        + (features + 1) * 512
        + (lstm_inputs + 512 + 1) * 4 * 512
        + 2 * (512 + 1) * 512
        + (512 + 1) * (1 + 18)
    )
    assert agent.body.state_size == 1024


# Table 8 of the SEED paper. Sequences of 120 are 80 trained steps after 40 of burn-in.
TABLE_8 = {
    "learner.batch_size": 64,
    "learner.unroll_length": 120 - 40,
    "r2d2.burn_in": 40,
    "r2d2.discount": 0.997,
    "r2d2.n_steps": 5,
    "r2d2.double_q": True,
    "r2d2.value_rescaling_epsilon": 1e-3,
    "r2d2.target_update_period": 2_500,
    "r2d2.max_priority_weight": 0.9,
    "learner.inference.batch_envs": 64,
    "r2d2.evaluation_epsilon": 1e-3,
    "r2d2.reward_clip": 0,
    "r2d2.life_loss_ends": False,
    "r2d2.dueling_units": 512,
    "learner.replay.capacity": 100_000,
    "learner.replay.min_size": 5_000,
    "learner.replay.ratio": 0.75,
    "learner.replay.priority_exponent": 0.9,
    "learner.replay.importance_sampling_exponent": 0.6,
    "learner.optimizer.name": "adam",
    "learner.optimizer.learning_rate": 1e-4,
    "learner.optimizer.epsilon": 1e-3,
    "learner.optimizer.max_gradient_norm": 80,
    "learner.frame_stack": 4,
    "learner.network": "nature",
    "learner.lstm_units": 512,
    "learner.initial_weights": "glorot",
    "environment.atari.preprocessing": "exact",
    "environment.atari.full_action_space": True,
    "environment.atari.frame_skip": 4,
    "environment.atari.sticky_action_probability": 0,
}


def test_exploration_is_table_8() -> None:
    """The i-th of N environments has 0.4^(1 + 7i / (N - 1)); the file has N of its own."""
    experiment = load_experiment(ATARI)
    n = experiment.actor.total_envs
    wanted = [0.4 ** (1 + 7 * i / (n - 1)) for i in range(n)]
    np.testing.assert_allclose(exploration_table(experiment.r2d2.epsilon_levels), wanted, rtol=1e-5)
    # Two groups of each actor alternate, so that half of the environments fill a batch.
    assert 2 * experiment.learner.inference.batch_envs == n


@pytest.mark.parametrize("key", TABLE_8)
def test_the_experiment_that_ships_is_table_8(key: str) -> None:
    value: Any = load_experiment(ATARI)
    written: Any = yaml.safe_load(ATARI.read_text())
    for part in key.split("."):
        value = getattr(value, part)
        written = written.get(part, {}) if isinstance(written, dict) else {}
    assert value == TABLE_8[key]
    # In the file too, where it is the agent's: a default may change, the paper does not.
    assert written in ({}, value)
