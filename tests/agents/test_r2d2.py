"""R2D2's burn-in, the loss of its agent, and the first priorities of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras import ops

from seedbed.agents.dqn.agent import DqnAgent
from seedbed.agents.protocol import ActInputs, ActOutputs, SequenceWindow, Unroll
from seedbed.agents.r2d2.agent import R2d2Agent
from seedbed.backends.protocol import Backend
from tests.support.q_learning import (
    B,
    R,
    gradient,
    make_agent,
    params_of,
    priorities,
    random_unroll,
    reference,
    tensors,
)

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

TIMED = (
    "observation",
    "previous_action",
    "previous_reward",
    "reward",
    "terminated",
    "truncated",
    "life_lost",
    "first",
)


@pytest.mark.slow_on_jax
def test_burn_in_gives_states_and_no_gradients(backend: Backend) -> None:
    """Its rows move the state, so the loss, but nothing flows back through them."""
    agent = make_agent(burn_in=4)
    unroll = random_unroll(1, state=16)
    unroll = unroll._replace(first=np.zeros((R, B), bool))  # or a first row forgets the burn-in
    observation, reward = unroll.observation, unroll.previous_reward
    target = params_of(agent, 0.9)

    def loss(x: list[Any]) -> Any:
        given = tensors(unroll)._replace(observation=x[0], state=x[1], previous_reward=x[2])
        return agent.loss(params_of(agent), target, given, ops.ones((B,)))[0]

    to_observation, to_state, to_reward = gradient(
        backend, loss, [observation, unroll.state, reward]
    )
    for array in (to_observation, to_reward):
        assert not array[:4].any()
        assert array[4:-1].any(axis=tuple(range(1, array.ndim))).all()
    assert not to_state.any()
    # But the numbers depend on them.
    given = [ops.convert_to_tensor(x) for x in (observation, unroll.state, reward)]
    before = float(loss(given))
    changed = observation.copy()
    changed[0] += 1
    assert abs(float(loss([ops.convert_to_tensor(changed), *given[1:]])) - before) > 1e-5 * before
    assert abs(float(loss([given[0], given[1] + 1.0, given[2]])) - before) > 1e-5 * before


@pytest.mark.parametrize("burn_in", [0, 4])
def test_the_agents_loss_is_that_of_the_rows_after_the_burn_in(burn_in: int) -> None:
    """Q from the stored state on, over all rows at once; the target network's by its own."""
    agent = make_agent(burn_in=burn_in, n_steps=3)
    unroll = random_unroll(2, state=16)
    params, target = params_of(agent), params_of(agent, 0.7)
    rows = [
        getattr(unroll, name)
        for name in ("observation", "previous_action", "previous_reward", "first", "state")
    ]
    q, target_q = (
        ops.convert_to_numpy(
            agent.model.stateless_call(p, [], *(ops.convert_to_tensor(x) for x in rows))[0][0]
        )
        for p in (params, target)
    )
    weight = np.linspace(0.1, 1, B).astype(np.float32)
    loss, _, priority = agent.loss(params, target, tensors(unroll), ops.convert_to_tensor(weight))
    rest = unroll._replace(**{name: getattr(unroll, name)[burn_in:] for name in (*TIMED, "action")})
    errors, real = reference(q[burn_in:], target_q[burn_in:], rest, agent.options)
    np.testing.assert_allclose(float(loss), (weight * 0.5 * (errors**2).sum(0)).mean(), rtol=1e-3)
    wanted = priorities(errors, real, 0.9)
    np.testing.assert_allclose(ops.convert_to_numpy(priority), wanted, rtol=1e-3)


def act(agent: R2d2Agent, unroll: Unroll, t: int, state: Any, seed: int = 0) -> ActOutputs:
    noise = np.random.default_rng([t, seed]).random((B, 2)).astype(np.float32)
    rows = (
        unroll.observation[t],
        unroll.previous_action[t],
        unroll.previous_reward[t],
        unroll.first[t],
        np.arange(B, dtype=np.int32),
        noise,
    )
    return agent.act(
        params_of(agent),
        ActInputs(*(ops.convert_to_tensor(x) for x in rows)),
        ops.convert_to_tensor(state),
        greedy=False,
    )


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("units", "options"),
    [
        (8, {"burn_in": 4}),
        (8, {"burn_in": 0, "life_loss_ends": True, "reward_clip": 0.5}),
        (8, {"burn_in": 3, "double_q": False, "value_rescaling_epsilon": 0.0}),
        (0, {}),
        (0, {"n_steps": 3}),
        (0, {"n_steps": 9, "double_q": True}),
    ],
)
def test_first_priorities_are_those_of_the_loss(units: int, options: dict[str, Any]) -> None:
    """When both networks are the one that acted, over any ends of episodes."""
    agent = make_agent(units, epsilon_levels=2, **options)
    rows = 2 + agent.lookahead if isinstance(agent, DqnAgent) else R
    unroll = random_unroll(5, rows, agent.body.state_size)
    state: Any = unroll.state
    outputs = []
    for t in range(rows):
        outputs.append(act(agent, unroll, t, state))
        state = outputs[-1].state
        if t < rows - 1:  # what was chosen is the next row's previous action
            action = ops.convert_to_numpy(outputs[-1].action)
            unroll.action[t] = action
            unroll.previous_action[t + 1] = np.where(unroll.first[t + 1], -1, action)
    trained = rows - 1 - agent.burn_in - agent.lookahead
    window = SequenceWindow(
        trained=trained,
        action=np.stack([ops.convert_to_numpy(o.action) for o in outputs]),
        reward=unroll.reward,
        terminated=unroll.terminated,
        life_lost=unroll.life_lost,
        first=unroll.first,
        behaviour={
            name: np.stack([ops.convert_to_numpy(o.behaviour[name]) for o in outputs])
            for name in agent.behaviour
        },
    )
    got = agent.initial_priority(window)
    assert (got.dtype, got.shape) == (np.float32, (B,))
    params = params_of(agent)
    _, _, wanted = agent.loss(params, params, tensors(unroll), ops.ones((B,)))
    np.testing.assert_allclose(got, ops.convert_to_numpy(wanted), rtol=1e-3, atol=1e-5)
    assert (got > 0.01).any()
