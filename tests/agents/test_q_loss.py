"""The loss of R2D2 and DQN against a walk through every window, and where gradients flow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from keras import ops

from seedbed.agents.dqn.options import DqnOptions
from seedbed.agents.protocol import Unroll
from seedbed.agents.q_loss import SMALLEST_PRIORITY, q_loss
from seedbed.agents.r2d2.options import R2d2Options
from seedbed.agents.training_step import importance_weights
from seedbed.backends.protocol import Backend
from tests.support.q_learning import (
    B,
    R,
    gradient,
    priorities,
    random_q,
    random_unroll,
    reference,
    tensors,
)

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

CASES = {
    "table-8": R2d2Options(),
    "no-double-q": R2d2Options(double_q=False),
    "no-rescaling": R2d2Options(value_rescaling_epsilon=0.0, discount=0.9),
    "one-step": R2d2Options(n_steps=1, max_priority_weight=0.5),
    "windows-longer-than-rows": R2d2Options(n_steps=50, discount=0.8),
    "lives": R2d2Options(life_loss_ends=True, discount=0.9, n_steps=3),
    "clipped": R2d2Options(reward_clip=0.7, max_priority_weight=1.0),
    "asymmetric": R2d2Options(optimistic_asymmetric_clip=True),
    "dqn": DqnOptions(),
    "dqn-n3": DqnOptions(n_steps=3, double_q=True, reward_clip=1.0),
}


@pytest.mark.parametrize("trained", [R - 1, R - 4])
@pytest.mark.parametrize("case", CASES)
def test_loss_equals_a_walk_through_every_window(case: str, trained: int) -> None:
    """Sequences end, episodes end and are truncated and cut, anywhere."""
    options = CASES[case]
    for seed in range(4):
        unroll, (q, target_q) = random_unroll(seed), random_q(seed)
        weight = np.random.default_rng(seed).uniform(0.1, 1, B).astype(np.float32)
        loss, scalars, priority = q_loss(
            *(ops.convert_to_tensor(x) for x in (q, target_q)),
            tensors(unroll),
            trained,
            ops.convert_to_tensor(weight),
            options,
        )
        errors, real = reference(q, target_q, unroll, options)
        errors, real = errors[:trained], real[:trained]
        assert 0 < real.sum() < real.size
        wanted = (weight * 0.5 * (errors**2).sum(0)).mean()
        np.testing.assert_allclose(float(loss), wanted, rtol=1e-4)
        wanted = priorities(errors, real, options.max_priority_weight)
        np.testing.assert_allclose(ops.convert_to_numpy(priority), wanted, rtol=1e-4)
        for name, number in {
            "td_error_mean": np.abs(errors)[real].mean(),
            "td_error_max": np.abs(errors).max(),
            "unmasked": real.mean(),
            "importance_weight_min": weight.min(),
            "q_max": q[:trained].max(),
        }.items():
            np.testing.assert_allclose(float(scalars[name]), number, rtol=1e-4)


@pytest.mark.parametrize("end", ["terminated", "truncated", "cut", "life_lost", "life_lost_asked"])
def test_ends_of_episodes(backend: Backend, end: str) -> None:
    """Row 2 is finished, row 3 the next episode's first; rewards are 1, γ = 1/2, n = 3, Q 0 but
    for the values that windows bootstrap from. The errors are read off the loss's gradient.
    """
    value = np.array([1.0, 2.0, 8.0, 3.0, 4.0, 16.0], np.float32)
    flags = {name: np.zeros((6, 1), bool) for name in ("terminated", "truncated", "life_lost")}
    if end != "cut":
        flags[end.removesuffix("_asked")][2] = True
    resets = not end.startswith("life_lost")
    first = (np.arange(6)[:, None] == 3) & resets
    zeros = np.zeros((6, 1), np.float32)
    unroll = Unroll(
        observation=zeros[..., None],
        previous_action=np.zeros((6, 1), np.int32),
        previous_reward=zeros,
        action=np.zeros((5, 1), np.int32),
        reward=zeros + 1,
        first=first,
        behaviour={},
        state=np.zeros((1, 0), np.float32),
        **flags,
    )
    q = np.zeros((6, 1, 2), np.float32)
    target_q = np.stack([np.full_like(value, -100), value], -1)[:, None]
    options = R2d2Options(
        discount=0.5,
        n_steps=3,
        value_rescaling_epsilon=0.0,
        double_q=False,
        life_loss_ends=end == "life_lost_asked",
    )
    last = 16.0
    if end == "life_lost":
        wanted = [1.75 + 3 / 8, 1.75 + 4 / 8, 1.75 + last / 8, 1.5 + last / 4, 1 + last / 2]
    elif end == "life_lost_asked":  # the life's own windows end, those after it go on
        wanted = [1.5, 1.0, 1.75 + last / 8, 1.5 + last / 4, 1 + last / 2]
    else:
        own = 0.0 if end == "terminated" else 8.0  # a truncated row bootstraps from itself
        wanted = [1.5 + own / 4, 1 + own / 2, 0.0, 1.5 + last / 4, 1 + last / 2]
    to_q, _ = gradient(
        backend,
        lambda x: q_loss(*x, tensors(unroll), 5, ops.ones((1,)), options)[0],
        [q, target_q],
    )
    np.testing.assert_allclose(-to_q[:-1, 0, 0], wanted, rtol=1e-6)


# In a process of its own: see test_ops_vtrace. In float64, since its inverse loses digits.
RLAX = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np, rlax
folder, *steps = sys.argv[1:]
x = {name: jax.numpy.asarray(array) for name, array in np.load(folder + "/given.npz").items()}
for n in steps:
    def one(q, a, target_q, best, r, d):
        return rlax.transformed_n_step_q_learning(
            q[:-1], a, target_q[1:], best[1:], r[1:], d[1:], int(n),
            tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR)
    errors = jax.vmap(one, in_axes=1, out_axes=1)(
        x["q"], x["action"], x["target_q"], x["best"], x["reward"], x["discount"])
    np.save(folder + "/wanted-" + n + ".npy", errors)
"""


def test_equals_rlax(backend: Backend, tmp_path: Path) -> None:
    """Episodes that end by their discount alone, as rlax has them; the sequence's end too."""
    if backend.name != "jax":
        pytest.skip("rlax needs JAX")
    unroll, (q, target_q) = random_unroll(3), random_q(3)
    unroll = unroll._replace(first=np.zeros((R, B), bool))
    given = {
        "q": q,
        "target_q": target_q,
        "reward": unroll.reward,
        "discount": np.where(unroll.terminated, 0, R2d2Options().discount),
    }
    assert unroll.terminated.any()
    np.savez(
        tmp_path / "given.npz",
        action=unroll.action,
        best=q.argmax(-1),
        **{name: array.astype(np.float64) for name, array in given.items()},
    )
    done = subprocess.run(
        [sys.executable, "-c", RLAX, tmp_path, "1", "5"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for n in (1, 5):
        options = R2d2Options(n_steps=n)
        errors = np.load(tmp_path / f"wanted-{n}.npy")
        loss, _, priority = q_loss(
            *(ops.convert_to_tensor(x) for x in (q, target_q)),
            tensors(unroll),
            R - 1,
            ops.ones((B,)),
            options,
        )
        np.testing.assert_allclose(float(loss), 0.5 * (errors**2).sum(0).mean(), rtol=1e-4)
        wanted = priorities(errors, np.ones_like(errors, bool), options.max_priority_weight)
        np.testing.assert_allclose(ops.convert_to_numpy(priority), wanted, rtol=1e-4)


def test_gradients_flow_only_where_they_should(backend: Backend) -> None:
    """Through Q of the chosen action of real trained transitions: -δ w / B. Not through targets."""
    unroll, (q, target_q) = random_unroll(7), random_q(7)
    weight = np.linspace(0.2, 1, B).astype(np.float32)
    options, trained = R2d2Options(), R - 3
    to_q, to_target = gradient(
        backend,
        lambda x: q_loss(*x, tensors(unroll), trained, ops.convert_to_tensor(weight), options)[0],
        [q, target_q],
    )
    errors, real = reference(q, target_q, unroll, options)
    wanted = np.zeros_like(q)
    t, b = np.indices((trained, B))
    wanted[t, b, unroll.action[:trained]] = (-errors * real * weight / B)[:trained]
    np.testing.assert_allclose(to_q, wanted, rtol=1e-3, atol=1e-5)
    assert not to_q[:-1][~real].any(), "masked"
    assert not to_q[trained:].any(), "lookahead"
    assert not to_target.any()


def test_a_sequence_without_a_real_transition_keeps_a_priority() -> None:
    unroll, (q, target_q) = random_unroll(8), random_q(8)
    unroll = unroll._replace(first=np.ones((R, B), bool))
    loss, _, priority = q_loss(
        ops.convert_to_tensor(q),
        ops.convert_to_tensor(target_q),
        tensors(unroll),
        R - 1,
        ops.ones((B,)),
        R2d2Options(),
    )
    assert float(loss) == 0
    np.testing.assert_allclose(ops.convert_to_numpy(priority), SMALLEST_PRIORITY)


@pytest.mark.parametrize("beta", [0.0, 0.6, 1.0])
def test_importance_weights(beta: float) -> None:
    """(N P)^-β over the largest, at the probabilities of a full replay."""
    n = 100_000
    probability = np.random.default_rng(0).uniform(0.01, 5, B) / n
    wanted = (n * probability) ** -beta
    got = importance_weights(ops.convert_to_tensor(probability.astype(np.float32)), beta)
    np.testing.assert_allclose(ops.convert_to_numpy(got), wanted / wanted.max(), rtol=1e-5)
    assert float(ops.max(got)) == 1
