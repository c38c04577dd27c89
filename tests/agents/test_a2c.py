"""The A2C agent: the loss against a walk along every row, and where gradients flow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.a2c.agent import A2cAgent, a2c_loss
from seedbed.agents.a2c.options import A2cOptions
from seedbed.agents.protocol import Unroll
from seedbed.agents.vtrace.agent import vtrace_loss
from seedbed.agents.vtrace.options import VtraceOptions
from seedbed.backends.protocol import Backend
from seedbed.networks.registry import make_body
from seedbed.spec import ArraySpec
from tests.agents.test_vtrace_agent import (
    A,
    B,
    T,
    log_softmax,
    one_column,
    random_outputs,
    random_unroll,
    tensors,
)
from tests.support.loss_gradients import central_differences, loss_gradients

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
MASKED = 2  # a column whose environment did not come


def masked_unroll(seed: int) -> Unroll:
    """As V-trace's, with a column of first rows only."""
    unroll = random_unroll(seed)
    unroll.first[:, MASKED] = True
    for flag in (unroll.terminated, unroll.truncated, unroll.life_lost):
        flag[:, MASKED] = False
    return unroll


def walk(unroll: Unroll, value: Array, options: A2cOptions) -> Array:
    """The return [T, B] of each real transition, by a walk from its row to where it ends."""
    returns = np.full((T, B), np.nan)
    for b in range(B):
        for t in range(T):
            if unroll.first[t + 1, b]:
                continue
            total, weight, at = 0.0, 1.0, t
            while True:
                at += 1
                reward = float(unroll.reward[at, b]) * options.reward_scale
                if options.optimistic_asymmetric_clip:
                    reward = math.tanh(reward) * (5.0 if reward > 0 else 0.3)
                if options.reward_clip:
                    reward = max(-options.reward_clip, min(options.reward_clip, reward))
                total += weight * reward
                weight *= options.discount
                life = options.life_loss_ends and unroll.life_lost[at, b]
                if unroll.terminated[at, b] or life:
                    break  # nothing comes after it
                if at == T or unroll.first[at + 1, b]:
                    total += weight * float(value[at, b])
                    break
            returns[t, b] = total
    return returns


def slow_loss(logits: Array, value: Array, unroll: Unroll, options: A2cOptions) -> dict[str, float]:
    """One transition after the other, in double precision. `target` is of the given values."""
    return slow_loss_at(logits, value, walk(unroll, value, options), value, unroll, options)


def slow_loss_at(
    logits: Array,
    value: Array,
    returns: Array,
    baseline: Array,
    unroll: Unroll,
    options: A2cOptions,
) -> dict[str, float]:
    """With returns and the advantage's `baseline` held fast, so that it can be differentiated."""
    log_policy = log_softmax(logits)
    policy = squares = entropy = count = 0.0
    for t in range(T):
        for b in range(B):
            if unroll.first[t + 1, b]:
                continue
            count += 1
            row = log_policy[t, b]
            policy -= (returns[t, b] - baseline[t, b]) * row[unroll.action[t, b]]
            squares += (returns[t, b] - value[t, b]) ** 2
            entropy -= float(np.sum(np.exp(row) * row))
    return {
        "policy_loss": policy / count,
        "baseline_loss": 0.5 * squares / count,
        "entropy": entropy / count,
        "loss": (policy + options.baseline_cost * 0.5 * squares - options.entropy_cost * entropy)
        / count,
        "unmasked": count / (T * B),
    }


CASES = [
    A2cOptions(),
    A2cOptions(life_loss_ends=True, discount=0.9),
    A2cOptions(optimistic_asymmetric_clip=True, reward_scale=0.7),
    A2cOptions(reward_clip=1.0, reward_scale=0.7, entropy_cost=0.1, baseline_cost=0.3),
]


@pytest.mark.parametrize("options", CASES)
def test_loss_equals_a_walk_along_the_rows(options: A2cOptions) -> None:
    unroll = masked_unroll(0)
    logits, value = random_outputs(0)
    loss, scalars = a2c_loss(
        ops.convert_to_tensor(logits), ops.convert_to_tensor(value), tensors(unroll), options
    )
    wanted = slow_loss(logits, value, unroll, options)
    np.testing.assert_allclose(float(loss), wanted.pop("loss"), rtol=1e-4)
    assert 0 < wanted["unmasked"] < 1
    returns, real = walk(unroll, value, options), ~unroll.first[1:]
    wanted["target_mean"] = returns[real].mean()
    wanted["advantage_mean"] = (returns - value[:-1])[real].mean()
    wanted["value_mean"] = value[:-1][real].mean()
    for name, number in wanted.items():
        np.testing.assert_allclose(float(scalars[name]), number, rtol=1e-4, err_msg=name)


def gradients(backend: Backend, unroll: Unroll, logits: Array, value: Array, options: A2cOptions):
    """The loss's gradients for the logits and the values."""

    def loss(*outputs: Any) -> Any:
        return a2c_loss(*outputs, tensors(unroll), options)[0]

    return loss_gradients(backend, loss, logits, value)


@pytest.mark.parametrize("options", CASES)
def test_gradients_are_the_slow_loss_differences(backend: Backend, options: A2cOptions) -> None:
    """Central differences in double precision, the targets held fast."""
    unroll = masked_unroll(1)
    logits, value = (x.astype(np.float64) for x in random_outputs(1))
    returns = walk(unroll, value, options)

    def slow(logits: Array, moved: Array) -> float:
        return slow_loss_at(logits, moved, returns, value, unroll, options)["loss"]

    slopes = central_differences(slow, logits, value, step=1e-5)
    to_logits, to_value = gradients(
        backend, unroll, logits.astype(np.float32), value.astype(np.float32), options
    )
    np.testing.assert_allclose(to_logits, slopes[0], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(to_value, slopes[1], rtol=1e-3, atol=1e-6)
    assert not to_logits[:, MASKED].any()
    assert not to_value[:, MASKED].any()
    assert not to_value[-1].any()
    assert to_value[:-1].any()


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_ends_of_episodes(backend: Backend, end: str) -> None:
    """Row 2 is finished, row 3 is the next episode's first. Returns by hand."""
    value = np.array([[1.0], [2.0], [8.0], [3.0], [4.0], [5.0]], np.float32)
    unroll = one_column(**{end: np.array([[0], [0], [1], [0], [0], [0]], bool)})
    options = A2cOptions(discount=0.5, baseline_cost=1.0, entropy_cost=0.0)
    _, to_value = gradients(backend, unroll, np.zeros((6, 1, A), np.float32), value, options)
    last = 0.0 if end == "terminated" else 8.0  # a truncated row bootstraps from itself
    at_1, at_4 = 1 + 0.5 * last, 1 + 0.5 * 5.0
    wanted = [1 + 0.5 * at_1 - 1, at_1 - 2, 0.0, 1 + 0.5 * at_4 - 3, at_4 - 4]
    np.testing.assert_allclose(-to_value[:-1, 0] * 4, wanted, atol=1e-5)


def test_a_batch_of_nothing_is_no_division_by_zero(backend: Backend) -> None:
    unroll = masked_unroll(2)
    unroll.first[:] = True
    to_logits, to_value = gradients(backend, unroll, *random_outputs(2), A2cOptions())
    assert not to_logits.any()
    assert not to_value.any()


def test_on_policy_it_is_vtrace() -> None:
    """With λ = ρ̄ = c̄ = 1 and the behaviour's own logits."""
    unroll = masked_unroll(3)
    logits, value = random_outputs(3)
    unroll = unroll._replace(behaviour={"logits": logits[:-1]})
    given = (ops.convert_to_tensor(logits), ops.convert_to_tensor(value), tensors(unroll))
    loss, scalars = a2c_loss(*given, A2cOptions())
    other, others = vtrace_loss(*given, VtraceOptions())
    np.testing.assert_allclose(float(loss), float(other), rtol=1e-5)
    assert scalars["unmasked"] == others["unmasked"]
    assert float(scalars["log_rho_max"]) < 1e-5


def test_parameters_are_arguments_and_options_arrive() -> None:
    np.random.seed(0)
    body = make_body("mlp", {"units": [16]}, ArraySpec((5,), "float32"), A, 1, 0)
    agent = A2cAgent(A2cOptions(entropy_cost=7.0, baseline_cost=0.0), body, A)
    assert agent.synchronous
    zeros = [ops.zeros_like(v.value) for v in agent.model.trainable_variables]
    loss, scalars = agent.loss(zeros, tensors(random_unroll(5)))
    np.testing.assert_allclose(float(scalars["entropy"]), np.log(A), rtol=1e-6)
    wanted = float(scalars["policy_loss"]) - 7.0 * np.log(A)
    np.testing.assert_allclose(float(loss), wanted, rtol=1e-5)


def test_normalized_returns_are_rewards_in_units_of_their_deviation() -> None:
    """The same loss as of rewards that are divided, and clipped, beforehand."""
    np.random.seed(0)
    body = make_body("mlp", {"units": [16]}, ArraySpec((5,), "float32"), A, 1, 0)
    agent = A2cAgent(A2cOptions(normalize_returns=True, reward_scale=0.5), body, A)
    plain = A2cAgent(A2cOptions(reward_scale=0.5), body, A)
    unroll = random_unroll(6)
    unroll.reward[2, 3] = 1e4
    returns = agent.model.returns
    assert returns is not None
    returns.statistics.assign([3.0, 4.0, 10.0])
    params = [v.value for v in agent.model.trainable_variables]
    others = dict(zip((v.path for v in agent.model.trainable_variables), params, strict=True))
    own = [others[v.path] for v in plain.model.trainable_variables]
    divided = unroll._replace(reward=np.clip(unroll.reward / 2.0, -10, 10))
    loss, _ = agent.loss(params, tensors(unroll))
    wanted, _ = plain.loss(own, tensors(divided))
    np.testing.assert_allclose(float(loss), float(wanted), rtol=1e-5)
