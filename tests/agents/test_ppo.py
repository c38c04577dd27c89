"""The PPO agent: the loss against a walk along every row, and where gradients flow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.ppo.agent import PpoAgent, ppo_loss
from seedbed.agents.ppo.options import PpoOptions
from seedbed.agents.protocol import Unroll
from seedbed.backends.protocol import Backend
from seedbed.networks.registry import make_body
from seedbed.spec import ArraySpec
from tests.agents.test_a2c import MASKED, masked_unroll
from tests.agents.test_vtrace_agent import A, B, T, log_softmax, random_outputs, tensors
from tests.support.loss_gradients import central_differences, loss_gradients

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]


def near_unroll(seed: int, logits: Array) -> Unroll:
    """An unroll that a policy near to `logits` has acted, so that some ratios are clipped."""
    noise = np.random.default_rng(seed + 50).normal(size=(T, B, A), scale=0.5)
    behaviour = (logits[:-1] + noise).astype(np.float32)
    return masked_unroll(seed)._replace(behaviour={"logits": behaviour})


def walked_advantages(unroll: Unroll, value: Array, options: PpoOptions) -> Array:
    """GAE [T, B] by its definition: the sum of (γλ)^k δ_{t+k} to the end of the episode."""
    advantage = np.full((T, B), np.nan)
    for b in range(B):
        for t in range(T):
            if unroll.first[t + 1, b]:
                continue
            total, weight, at = 0.0, 1.0, t
            while True:
                at += 1
                terminal = unroll.terminated[at, b]
                if options.life_loss_ends:
                    terminal = terminal or unroll.life_lost[at, b]
                after = 0.0 if terminal else options.discount * float(value[at, b])
                reward = float(unroll.reward[at, b]) * options.reward_scale
                total += weight * (reward + after - float(value[at - 1, b]))
                weight *= options.discount * options.gae_lambda
                if terminal or at == T or unroll.first[at + 1, b]:
                    break
            advantage[t, b] = total
    return advantage


def slow_loss(
    logits: Array, value: Array, advantage: Array, target: Array, unroll: Unroll, options: Any
) -> dict[str, float]:
    """One transition after the other in double precision, with advantages and targets given."""
    log_policy, log_behaviour = log_softmax(logits), log_softmax(unroll.behaviour["logits"])
    real = [(t, b) for t in range(T) for b in range(B) if not unroll.first[t + 1, b]]
    if options.normalize_advantages:
        mean = sum(advantage[at] for at in real) / len(real)
        deviation = math.sqrt(sum((advantage[at] - mean) ** 2 for at in real) / len(real))
        advantage = (advantage - mean) / deviation
    surrogate = squares = entropy = clipped = kl = 0.0
    for at in real:
        row, action = log_policy[at], unroll.action[at]
        ratio = math.exp(row[action] - log_behaviour[at][action])
        low, high = 1 - options.clip_range, 1 + options.clip_range
        surrogate += min(ratio * advantage[at], max(low, min(high, ratio)) * advantage[at])
        clipped += not low <= ratio <= high
        kl += ratio - 1 - math.log(ratio)
        squares += (target[at] - value[at]) ** 2
        entropy -= float(np.sum(np.exp(row) * row))
    n = len(real)
    loss = -surrogate + options.baseline_cost * 0.5 * squares - options.entropy_cost * entropy
    return {
        "loss": loss / n,
        "policy_loss": -surrogate / n,
        "baseline_loss": 0.5 * squares / n,
        "entropy": entropy / n,
        "clip_fraction": clipped / n,
        "kl": kl / n,
        "return_mean": sum(target[at] for at in real) / n,
        "unmasked": n / (T * B),
    }


CASES = [
    PpoOptions(),
    PpoOptions(normalize_advantages=False, clip_range=0.1, gae_lambda=1.0),
    PpoOptions(life_loss_ends=True, discount=0.9, gae_lambda=0.5, reward_scale=0.7),
    PpoOptions(gae_lambda=0.0, entropy_cost=0.1, baseline_cost=0.3),
]


@pytest.mark.parametrize("options", CASES)
def test_loss_equals_a_walk_along_the_rows(options: PpoOptions) -> None:
    logits, value = random_outputs(0)
    unroll = near_unroll(0, logits)
    loss, scalars = ppo_loss(
        ops.convert_to_tensor(logits), ops.convert_to_tensor(value), tensors(unroll), options
    )
    advantage = walked_advantages(unroll, value, options)
    wanted = slow_loss(logits, value, advantage, advantage + value[:-1], unroll, options)
    assert 0 < wanted["clip_fraction"] < 1
    np.testing.assert_allclose(float(loss), wanted.pop("loss"), rtol=1e-4)
    for name, number in wanted.items():
        np.testing.assert_allclose(float(scalars[name]), number, rtol=2e-4, err_msg=name)


@pytest.mark.parametrize("options", CASES)
def test_gradients_are_the_slow_loss_differences(backend: Backend, options: PpoOptions) -> None:
    """Central differences in double precision, advantages and targets held fast."""
    logits, value = (x.astype(np.float64) for x in random_outputs(1))
    unroll = near_unroll(1, logits.astype(np.float32))
    advantage = walked_advantages(unroll, value, options)
    target = advantage + value[:-1]

    def slow(logits: Array, moved: Array) -> float:
        return slow_loss(logits, moved, advantage, target, unroll, options)["loss"]

    slopes = central_differences(slow, logits, value, step=1e-6)
    to_logits, to_value = gradients(
        backend, unroll, logits.astype(np.float32), value.astype(np.float32), options
    )
    np.testing.assert_allclose(to_logits, slopes[0], rtol=2e-3, atol=1e-6)
    np.testing.assert_allclose(to_value, slopes[1], rtol=2e-3, atol=1e-6)
    assert not to_logits[:, MASKED].any()
    assert not to_value[:, MASKED].any()


def gradients(
    backend: Backend, unroll: Unroll, logits: Array, value: Array, options: PpoOptions
) -> tuple[Array, Array]:
    """The loss's gradients for the logits and the values."""

    def loss(*outputs: Any) -> Any:
        return ppo_loss(*outputs, tensors(unroll), options)[0]

    return loss_gradients(backend, loss, logits, value)


def test_a_ratio_that_has_gone_far_enough_has_no_gradient(backend: Backend) -> None:
    """Equation (7): clipped only where the objective would still gain."""
    logits, value = random_outputs(2)
    options = PpoOptions(normalize_advantages=False, entropy_cost=0.0, baseline_cost=0.0)
    unroll = near_unroll(2, logits)
    to_logits, _ = gradients(backend, unroll, logits, value, options)
    taken = np.take_along_axis(log_softmax(logits[:-1]), unroll.action[..., None], -1)
    before = np.take_along_axis(
        log_softmax(unroll.behaviour["logits"]), unroll.action[..., None], -1
    )
    ratio = np.exp(taken - before)[..., 0]
    advantage = walked_advantages(unroll, value, options)
    stopped = ((ratio > 1.2) & (advantage > 0)) | ((ratio < 0.8) & (advantage < 0))
    moving = ~stopped & ~unroll.first[1:]
    assert stopped.any()
    assert ((ratio > 1.2) & (advantage < 0) & moving).any(), "back to where it was"
    assert not to_logits[:-1][stopped].any()
    assert np.abs(to_logits[:-1][moving]).sum(-1).min() > 0


def test_a_batch_of_nothing_is_no_division_by_zero(backend: Backend) -> None:
    logits, value = random_outputs(3)
    unroll = near_unroll(3, logits)
    unroll.first[:] = True
    to_logits, to_value = gradients(backend, unroll, logits, value, PpoOptions())
    assert not to_logits.any()
    assert not to_value.any()


@pytest.mark.parametrize("sign", [1, -1])
def test_logits_of_an_actor_that_lies_leave_every_number_finite(
    backend: Backend, sign: int
) -> None:
    """Within the bounds of an unroll of an actor that chooses its actions: ±1e6."""
    logits, value = random_outputs(5)
    unroll = near_unroll(5, logits)
    behaviour = sign * 1e6 * np.eye(A, dtype=np.float32)[unroll.action]
    unroll = unroll._replace(behaviour={"logits": behaviour})
    for options in (PpoOptions(), PpoOptions(normalize_advantages=False)):
        for gradient in gradients(backend, unroll, logits, value, options):
            assert np.isfinite(gradient).all()
        outputs = ops.convert_to_tensor(logits), ops.convert_to_tensor(value)
        loss, scalars = ppo_loss(*outputs, tensors(unroll), options)
        for name, number in {"loss": loss, **scalars}.items():
            assert np.isfinite(float(number)), name


def test_equal_advantages_stay_finite(backend: Backend) -> None:
    """Values and rewards of 0, as in an environment whose goal nothing has reached yet."""
    logits, value = random_outputs(4)
    unroll = near_unroll(4, logits)
    unroll.reward[:] = 0
    to_logits, to_value = gradients(backend, unroll, logits, np.zeros_like(value), PpoOptions())
    assert np.isfinite(to_logits).all()
    assert not to_value.any()


def test_parameters_are_arguments_and_options_arrive() -> None:
    np.random.seed(0)
    body = make_body("mlp", {"units": [16]}, ArraySpec((5,), "float32"), A, 1, 0)
    agent = PpoAgent(PpoOptions(entropy_cost=7.0, baseline_cost=0.0), body, A)
    assert not agent.synchronous
    zeros = [ops.zeros_like(v.value) for v in agent.model.trainable_variables]
    unroll = near_unroll(5, random_outputs(5)[0])
    loss, scalars = agent.loss(zeros, tensors(unroll))
    np.testing.assert_allclose(float(scalars["entropy"]), np.log(A), rtol=1e-6)
    wanted = float(scalars["policy_loss"]) - 7.0 * np.log(A)
    np.testing.assert_allclose(float(loss), wanted, rtol=1e-5)
