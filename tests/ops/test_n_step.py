"""n-step returns against a walk along each window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.ops.n_step import bootstrapped_returns, n_step_returns, returns_so_far

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
R, B = 10, 40


def random_inputs(seed: int) -> dict[str, Array]:
    """Rows that end an episode anywhere, also next to each other; some have a discount of 0."""
    rng = np.random.default_rng(seed)
    ends = rng.random((R, B)) < 0.2
    over = rng.random((R, B)) < np.where(ends, 0.5, 0.1)  # a lost life ends nothing
    return {
        "reward": rng.normal(size=(R, B)).astype(np.float32),
        "discount": np.where(over, 0, 0.9).astype(np.float32),
        "ends": ends,
        "value": rng.normal(size=(R, B), scale=5).astype(np.float32),
    }


def reference(inputs: dict[str, Array], n: int) -> Array:
    reward, discount, ends, value = (inputs[k] for k in ("reward", "discount", "ends", "value"))
    returns = np.zeros((R - 1, B))
    for b in range(B):
        for t in range(R - 1):
            at, total, weight = t, 0.0, 1.0
            while at < t + n and at < R - 1 and not ends[at, b]:
                at += 1
                total += weight * float(reward[at, b])
                weight *= float(discount[at, b])
            returns[t, b] = total + weight * float(value[at, b])
    return returns


def transitions(inputs: dict[str, Array]) -> dict[str, Array]:
    return {
        "r_t": inputs["reward"][1:],
        "discount_t": inputs["discount"][1:],
        "mask_t": (~inputs["ends"][:-1]).astype(np.float32),
        "values": inputs["value"],
    }


def run(inputs: dict[str, Array], n: int) -> Array:
    tensors = {name: ops.convert_to_tensor(x) for name, x in transitions(inputs).items()}
    return ops.convert_to_numpy(n_step_returns(**tensors, n=n))


@pytest.mark.parametrize("n", [1, 2, 5, R - 1, 50])
def test_equals_a_walk_along_the_window(n: int) -> None:
    inputs = random_inputs(n)
    wanted = reference(inputs, n)
    np.testing.assert_allclose(run(inputs, n), wanted, rtol=1e-5, atol=1e-5)
    on_host = n_step_returns(**transitions(inputs), n=n, xp=np)
    np.testing.assert_allclose(on_host, wanted, rtol=1e-5, atol=1e-5)


def test_n_as_long_as_the_rows_is_monte_carlo() -> None:
    inputs = random_inputs(0)
    inputs["ends"][:] = False
    target = inputs["value"][-1].astype(np.float64)
    returns = run(inputs, R - 1)
    for t in reversed(range(R - 1)):
        target = inputs["reward"][t + 1] + inputs["discount"][t + 1] * target
        np.testing.assert_allclose(returns[t], target, rtol=1e-5, atol=1e-5)


def test_nothing_behind_an_episodes_end_is_seen(backend: Backend) -> None:
    inputs = random_inputs(1)
    inputs["ends"][:] = np.arange(R)[:, None] == 4
    before = run(inputs, 3)
    for name in ("reward", "value"):
        inputs[name][5:] += 100
    np.testing.assert_array_equal(run(inputs, 3)[:4], before[:4])
    inputs["value"][4] += 100  # a truncated row bootstraps from itself
    assert (run(inputs, 3)[3] != before[3]).sum() == (inputs["discount"][4] > 0).sum() > 0


def test_bootstrapped_returns_equal_a_walk_to_the_end() -> None:
    inputs = random_inputs(2)
    wanted = reference(inputs, R)
    tensors = {name: ops.convert_to_tensor(x) for name, x in transitions(inputs).items()}
    returns = bootstrapped_returns(**tensors)
    np.testing.assert_allclose(ops.convert_to_numpy(returns), wanted, rtol=1e-5, atol=1e-5)


def test_returns_so_far_are_a_walk_back_to_the_start() -> None:
    given = transitions(random_inputs(4))
    r_t, discount_t, mask_t = (np.asarray(given[name]) for name in ("r_t", "discount_t", "mask_t"))
    found = ops.convert_to_numpy(returns_so_far(r_t, discount_t, mask_t))
    for b in range(B):
        for t in range(R - 1):
            total, weight, at = 0.0, 1.0, t
            while at >= 0 and mask_t[at, b] and weight:
                total += weight * float(r_t[at, b])
                at -= 1
                weight *= float(discount_t[at, b]) if at >= 0 else 0.0
            assert found[t, b] == pytest.approx(total, abs=1e-5)
