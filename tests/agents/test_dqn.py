"""DQN: the network and settings of "Deep In-GPU Experience Replay", and single transitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras import ops

from seedbed.agents.dqn.agent import DqnAgent
from seedbed.agents.dqn.options import DqnOptions
from seedbed.agents.r2d2.agent import R2d2Agent
from seedbed.backends.protocol import Backend
from seedbed.config import load_experiment
from seedbed.factory import build_agent
from seedbed.networks.registry import make_body
from seedbed.spec import ArraySpec, EnvironmentSpec
from tests.support.q_learning import (
    A,
    B,
    gradient,
    params_of,
    priorities,
    random_unroll,
    reference,
    tensors,
)

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

CARTPOLE = Path(__file__).parents[2] / "experiments/cartpole-dqn.yaml"


def test_the_defaults_are_the_papers() -> None:
    """Section 4.2; double Q-learning and n steps are options."""
    options = DqnOptions()
    assert (options.target_update_period, options.dueling_units) == (10_000, 512)
    assert (options.n_steps, options.double_q, options.value_rescaling_epsilon) == (1, False, 0)


def test_the_experiment_that_ships_has_the_papers_network() -> None:
    """128 shared units, 2 x 512, without recurrence; drawn uniformly."""
    experiment = load_experiment(CARTPOLE)
    spec = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1)
    agent: Any = build_agent(experiment, spec)
    shapes = [tuple(v.shape) for v in agent.model.trainable_variables]
    assert sorted(s for s in shapes if len(s) == 2) == sorted(
        [(4, 128), (128, 512), (512, 1), (128, 512), (512, 2)]
    )
    assert agent.model.count_params() == 5 * 128 + 2 * 129 * 512 + 513 * (1 + 2)
    assert (agent.body.state_size, agent.burn_in) == (0, 0)
    replay = experiment.learner.replay
    assert (replay.priority_exponent, replay.importance_sampling_exponent) == (0, 0)


def make_agent(n: int, **options: Any) -> DqnAgent:
    np.random.seed(0)
    body = make_body("mlp", {"units": [16]}, ArraySpec((5,), "float32"), A, 1, 0)
    return DqnAgent(DqnOptions(n_steps=n, dueling_units=16, **options), body, A)


def other_params(agent: DqnAgent) -> list[Any]:
    """Of a target network that prefers other actions."""
    rng = np.random.default_rng(1)
    return [p + rng.normal(size=p.shape).astype(np.float32) for p in params_of(agent)]


@pytest.mark.slow_on_jax
@pytest.mark.parametrize("life_loss_ends", [False, True])
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize(("n", "seed"), [(1, 4), (3, 4), (10, 4), (10, 5)])
def test_a_sequence_trains_one_transition(
    n: int, seed: int, double_q: bool, life_loss_ends: bool
) -> None:
    """The rows after it only complete its window."""
    agent = make_agent(n, double_q=double_q, life_loss_ends=life_loss_ends)
    assert agent.lookahead == n - 1
    unroll = random_unroll(seed, rows=1 + n)
    params, target = params_of(agent), other_params(agent)
    weight = np.linspace(0.1, 1, B).astype(np.float32)
    loss, scalars, priority = agent.loss(
        params, target, tensors(unroll), ops.convert_to_tensor(weight)
    )
    rows = [
        ops.convert_to_tensor(getattr(unroll, name))
        for name in ("observation", "previous_action", "previous_reward", "first", "state")
    ]
    q, target_q = (
        ops.convert_to_numpy(agent.model.stateless_call(p, [], *rows)[0][0])
        for p in (params, target)
    )
    assert float(scalars["q_max"]) == pytest.approx(q[0].max(), rel=1e-4)
    errors, real = reference(q, target_q, unroll, agent.options)
    np.testing.assert_allclose(float(loss), (weight * 0.5 * errors[0] ** 2).mean(), rtol=1e-4)
    np.testing.assert_allclose(
        ops.convert_to_numpy(priority), priorities(errors[:1], real[:1], 0.9), rtol=1e-4
    )


@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("n", [1, 5])
def test_the_gradient_is_that_of_all_rows(backend: Backend, n: int, double_q: bool) -> None:
    """As R2D2's loss gives it, which runs both networks over every row of the window."""
    agent = make_agent(n, double_q=double_q)
    unroll, target = tensors(random_unroll(6, rows=1 + n)), other_params(agent)
    weight = ops.convert_to_tensor(np.linspace(0.1, 1, B).astype(np.float32))
    of_two_rows, of_all = (
        gradient(
            backend,
            lambda params, loss=loss: loss(agent, params, target, unroll, weight)[0],
            params_of(agent),
        )
        for loss in (DqnAgent.loss, R2d2Agent.loss)
    )
    assert any(array.any() for array in of_all)
    for mine, all_rows in zip(of_two_rows, of_all, strict=True):
        np.testing.assert_allclose(mine, all_rows, rtol=1e-4, atol=1e-6)
