"""Random sequences, a slow Q-learning loss in NumPy, and small agents to hold against it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from seedbed.agents.dqn.agent import DqnAgent
from seedbed.agents.dqn.options import DqnOptions
from seedbed.agents.options import QLearningOptions
from seedbed.agents.protocol import Unroll
from seedbed.agents.q_loss import SMALLEST_PRIORITY
from seedbed.agents.r2d2.agent import R2d2Agent
from seedbed.agents.r2d2.options import R2d2Options
from seedbed.backends.protocol import Backend
from seedbed.networks.registry import make_body
from seedbed.spec import ArraySpec

Array = NDArray[Any]

R, B, A = 13, 8, 4


def random_unroll(seed: int, rows: int = R, state: int = 0) -> Unroll:
    """Finished rows are followed by `first` rows; some episodes are cut: a `first` row that
    follows no finished one.
    """
    rng = np.random.default_rng(seed)
    shape = (rows, B)
    terminated = rng.random(shape) < 0.1
    truncated = (rng.random(shape) < 0.1) & ~terminated
    first = rng.random(shape) < 0.05
    first[1:] |= (terminated | truncated)[:-1]
    terminated, truncated = terminated & ~first, truncated & ~first
    action = rng.integers(0, A, (rows - 1, B)).astype(np.int32)
    previous = np.concatenate([rng.integers(0, A, (1, B)), action])
    reward = rng.normal(size=shape, scale=2).astype(np.float32)
    return Unroll(
        observation=rng.normal(size=(*shape, 5)).astype(np.float32),
        previous_action=np.where(first, -1, previous).astype(np.int32),
        previous_reward=np.where(first, 0, reward).astype(np.float32),
        action=action,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        life_lost=rng.random(shape) < 0.15,
        first=first,
        behaviour={},
        state=rng.normal(size=(B, state)).astype(np.float32),
    )


def tensors(unroll: Unroll) -> Unroll:
    fields = unroll._asdict()
    fields.pop("behaviour")
    return Unroll(**{n: ops.convert_to_tensor(x) for n, x in fields.items()}, behaviour={})


def random_q(seed: int, rows: int = R) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed + 100)
    q, target_q = rng.normal(size=(2, rows, B, A), scale=3).astype(np.float32)
    return q, target_q


def h(x: float, epsilon: float) -> float:
    """Equation of Pohlen et al. 2018, section 3.2."""
    return float(np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + epsilon * x)


def h_inverse(x: float, epsilon: float) -> float:
    """Their proposition A.2."""
    if not epsilon:
        return x
    root = (np.sqrt(1 + 4 * epsilon * (abs(x) + 1 + epsilon)) - 1) / (2 * epsilon)
    return float(np.sign(x) * (root**2 - 1))


def reference(
    q: Array, target_q: Array, unroll: Unroll, options: QLearningOptions
) -> tuple[Array, NDArray[np.bool_]]:
    """Errors [R-1, B] in float64, each window walked along by itself, and which are real."""
    epsilon = options.value_rescaling_epsilon
    rows, columns = unroll.first.shape
    errors = np.zeros((rows - 1, columns))
    for b in range(columns):
        for t in range(rows - 1):
            if unroll.first[t + 1, b]:
                continue  # nobody chose what comes next
            at, total, weight = t, 0.0, 1.0
            while at < t + options.n_steps and weight:
                if at == rows - 1 or unroll.first[at + 1, b]:
                    break  # the sequence, or the episode, has no more: its own value
                at += 1
                reward = float(unroll.reward[at, b])
                if options.optimistic_asymmetric_clip:
                    reward = math.tanh(reward) * (5.0 if reward > 0 else 0.3)
                if options.reward_clip:
                    reward = min(max(reward, -options.reward_clip), options.reward_clip)
                total += weight * reward
                weight *= options.discount
                if unroll.terminated[at, b] or (options.life_loss_ends and unroll.life_lost[at, b]):
                    weight = 0.0
            best = int(np.argmax((q if options.double_q else target_q)[at, b]))
            total += weight * h_inverse(float(target_q[at, b, best]), epsilon)
            target = h(total, epsilon) if epsilon else total
            errors[t, b] = target - float(q[t, b, unroll.action[t, b]])
    return errors, ~unroll.first[1:]


def priorities(errors: Array, real: Array, eta: float) -> Array:
    size = np.abs(errors)
    wanted = [
        eta * size[:, b].max() + (1 - eta) * (size[real[:, b], b].mean() if real[:, b].any() else 0)
        for b in range(size.shape[1])
    ]
    return np.maximum(wanted, SMALLEST_PRIORITY)


def gradient(backend: Backend, function: Any, given: list[Any]) -> list[Array]:
    """Of function(given), a number, for each array of `given`."""
    given = [ops.convert_to_tensor(x) for x in given]
    if backend.name == "jax":
        import jax

        result = jax.jit(jax.grad(function))(given)  # op by op it takes minutes
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(given)
            number = function(given)
        result = tape.gradient(number, given, unconnected_gradients="zero")
    return [ops.convert_to_numpy(x) for x in result]


def make_agent(units: int = 8, **options: Any) -> R2d2Agent:
    np.random.seed(0)
    body = make_body("mlp", {"units": [16]}, ArraySpec((5,), "float32"), A, 1, units)
    if not units:
        return DqnAgent(DqnOptions(dueling_units=16, **options), body, A)
    return R2d2Agent(R2d2Options(dueling_units=16, **options), body, A)


def params_of(agent: R2d2Agent, scale: float = 1.0) -> list[Any]:
    return [ops.convert_to_tensor(v.value) * scale for v in agent.model.trainable_variables]
