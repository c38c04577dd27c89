"""Distributions over actions against slow ones: every joint action, and NormalDist of Python."""

from __future__ import annotations

from itertools import product
from math import exp, log, tanh
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from keras import ops

from seedbed.agents.actor_critic import ActorCriticAgent
from seedbed.agents.distributions import Gaussian, MultiCategorical
from seedbed.agents.protocol import ActInputs
from seedbed.agents.vtrace.agent import VtraceAgent
from seedbed.agents.vtrace.options import VtraceOptions
from seedbed.networks.registry import make_body
from seedbed.packed import ACTION_MASK, Entry, PackedSpec
from seedbed.spec import ActionSpec, ArraySpec

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

SIZES = (3, 2, 4)
# Means, then logarithms of standard deviations; the last one is below the least that is taken.
MEANS, LOG_STDS = (-0.4, 0.9, 0.1), (-0.5, 0.3, -9.0)
STDS = [exp(max(x, -5.0)) for x in LOG_STDS]
NORMAL = Gaussian(3)
LOGITS = np.array([*MEANS, *LOG_STDS], np.float32)


def host(array: Any) -> np.ndarray:
    return ops.convert_to_numpy(array)


def device(array: Any) -> Any:
    return ops.convert_to_tensor(np.asarray(array))


def joint(logits: np.ndarray) -> dict[tuple[int, ...], float]:
    """The probability of each joint action."""
    parts = np.split(logits.astype(np.float64), np.cumsum(SIZES)[:-1])
    shares = [np.exp(part) / np.exp(part).sum() for part in parts]
    every = product(*map(range, SIZES))
    return {a: float(np.prod([s[i] for s, i in zip(shares, a, strict=True)])) for a in every}


def test_several_actions_are_a_product_of_softmaxes() -> None:
    logits = np.random.default_rng(0).normal(size=sum(SIZES), scale=2).astype(np.float32)
    wanted, policy = joint(logits), MultiCategorical(SIZES)
    action = np.array(list(wanted), np.int32)[:, None]  # [T, 1, 3]
    tiled = device(np.tile(logits, (len(wanted), 1, 1)))
    found = host(policy.log_prob(tiled, device(action), {}))[:, 0]
    np.testing.assert_allclose(found, np.log(list(wanted.values())), atol=1e-4)
    entropy = -sum(p * log(p) for p in wanted.values())
    np.testing.assert_allclose(host(policy.entropy(tiled)), entropy, atol=1e-4)
    best, _ = policy.mode(device(logits[None]))
    assert tuple(host(best)[0]) == max(wanted, key=lambda a: wanted[a])


def test_samples_of_several_actions_follow_it() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=sum(SIZES)).astype(np.float32)
    n = 20_000
    noise = rng.random((n, len(SIZES))).astype(np.float32)
    action, _ = MultiCategorical(SIZES).sample(device(np.tile(logits, (n, 1))), device(noise))
    assert action.shape == (n, 3)
    found = host(action)
    for one, share in joint(logits).items():
        seen = float((found == one).all(axis=1).mean())
        assert abs(seen - share) < 5 * (share / n) ** 0.5, one


def test_continuous_actions_have_the_density_of_normal_numbers() -> None:
    rows = np.random.default_rng(2).normal(size=(5, 1, 3)).astype(np.float32)
    rows[..., 2] = MEANS[2] + STDS[2] * rows[..., 2]
    laws = [NormalDist(m, s) for m, s in zip(MEANS, STDS, strict=True)]
    wanted = [
        sum(log(law.pdf(float(x))) for law, x in zip(laws, row[0], strict=True)) for row in rows
    ]
    tiled = device(np.tile(LOGITS, (5, 1, 1)))
    found = host(NORMAL.log_prob(tiled, None, {"normal": device(rows)}))[:, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    # The entropy is the mean of -log p over numbers that are spread evenly over the law.
    spread = [(i + 0.5) / 4000 for i in range(4000)]
    entropy = sum(-log(law.pdf(law.inv_cdf(u))) for law in laws for u in spread) / 4000
    np.testing.assert_allclose(host(NORMAL.entropy(tiled)), entropy, atol=5e-3)


@pytest.mark.parametrize("squash", [False, True], ids=["clipped", "squashed"])
def test_continuous_samples_are_quantiles_within_the_bounds(squash: bool) -> None:
    noise = np.array([[0.5, 0.05, 0.9], [0.99, 0.7, 0.2], [0.0, 1.0, 0.5]], np.float32)
    policy = Gaussian(3, squash)
    action, behaviour = policy.sample(device(np.tile(LOGITS, (3, 1))), device(noise))
    found, normal = host(action), host(behaviour["normal"])
    wanted = [
        [NormalDist(m, s).inv_cdf(float(u)) for m, s, u in zip(MEANS, STDS, row, strict=True)]
        for row in noise[:2]
    ]
    np.testing.assert_allclose(normal[:2], wanted, atol=1e-4)
    mapped = np.tanh(normal) if squash else np.clip(normal, -1, 1)
    np.testing.assert_allclose(found, mapped, atol=1e-6)
    assert np.isfinite(normal).all()
    assert ActionSpec("continuous", (3,)).wrong(found) is None
    best, _ = policy.mode(device(LOGITS[None]))
    np.testing.assert_allclose(host(best)[0], np.tanh(MEANS) if squash else MEANS, atol=1e-6)


def test_ratios_are_those_of_squashed_actions() -> None:
    """Their densities are differences of the distribution function of the actions themselves."""

    def density(law: NormalDist, action: float) -> float:
        step = 1e-4
        high, low = np.arctanh(action + step), np.arctanh(action - step)
        return (law.cdf(float(high)) - law.cdf(float(low))) / (2 * step)

    policy = Gaussian(1, squash=True)
    old, new = (0.3, -0.2), (-0.5, 0.4)
    for normal in (-1.2, 0.1, 0.8):
        log_probs = [
            float(
                host(
                    policy.log_prob(
                        device(np.array([[law]], np.float32)),
                        device(np.array([[[tanh(normal)]]], np.float32)),
                        {"normal": device(np.array([[[normal]]], np.float32))},
                    )
                )[0, 0]
            )
            for law in (new, old)
        ]
        ratio = [density(NormalDist(m, exp(s)), tanh(normal)) for m, s in (new, old)]
        assert exp(log_probs[0] - log_probs[1]) == pytest.approx(ratio[0] / ratio[1], rel=1e-3)


MASKED = PackedSpec.of(
    [
        Entry("x", ArraySpec((3,), "float32")),
        Entry(ACTION_MASK, ArraySpec((4,), "uint8")),
    ]
)


def act(agent: ActorCriticAgent, observation: np.ndarray, greedy: bool = False) -> Any:
    n, action = len(observation), agent.body.action
    rng = np.random.default_rng(3)
    inputs = ActInputs(
        device(observation),
        device(action.none(n)),
        device(np.zeros(n, np.float32)),
        device(np.ones(n, bool)),
        device(np.arange(n, dtype=np.int32)),
        device(rng.random((n, agent.noise_columns)).astype(np.float32)),
    )
    params = [v.value for v in agent.model.trainable_variables]
    return agent.act(params, inputs, device(np.zeros((n, 0), np.float32)), greedy)


@pytest.mark.parametrize("stack", [1, 2])
def test_actions_that_are_not_valid_have_probability_0(stack: int) -> None:
    """The newest mask counts; where no action is valid, all are."""
    rng = np.random.default_rng(4)
    n = 300
    masks = rng.integers(0, 2, (stack, n, 4)).astype(np.uint8)
    numbers = rng.normal(size=(stack, n, 3)).astype(np.float32)
    rows = [
        [MASKED.pack({"x": x, ACTION_MASK: m}) for x, m in zip(xs, ms, strict=True)]
        for xs, ms in zip(numbers, masks, strict=True)
    ]
    observation = np.concatenate(rows, axis=-1)  # [N, K * bytes]
    body = make_body("mlp", {"units": [8]}, MASKED, 4, stack, 0)
    agent = VtraceAgent(VtraceOptions(), body, 4)
    valid = masks[-1].astype(bool)
    none = ~valid.any(axis=1)
    assert none.any()
    valid[none] = True
    for greedy in (False, True):
        out = act(agent, observation, greedy)
        logits, action = host(out.behaviour["logits"]), host(out.action)
        assert valid[np.arange(n), action].all()
        probability = np.exp(logits - logits.max(-1, keepdims=True))
        assert (probability[~valid] == 0).all()
        assert (probability[valid] > 0.01).all()
        assert (np.abs(logits[valid]) < 10).all(), "and the others are the network's"
        assert len(set(action.tolist())) == 4, "a policy of one action proves nothing"
    entropy = host(agent.policy.entropy(out.behaviour["logits"]))
    shares = probability / probability.sum(-1, keepdims=True)
    logs = np.log(np.where(valid, shares, 1))
    np.testing.assert_allclose(entropy, -(shares * logs).sum(-1), atol=1e-4)


@pytest.mark.parametrize("squash", [False, True])
def test_the_option_squashes(squash: bool) -> None:
    space = ActionSpec("continuous", (2,))
    body = make_body("mlp", {"units": [8]}, ArraySpec((3,), "float32"), space, 1, 0)
    agent = VtraceAgent(VtraceOptions(squash=squash), body, space.width)
    out = act(agent, np.zeros((50, 3), np.float32))
    assert (np.abs(host(out.action)) == 1).any() == (not squash), "clipped numbers lie on a bound"
