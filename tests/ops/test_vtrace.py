"""V-trace against equation (1) of Espeholt et al. 2018, summed without any recursion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.ops.masked import explained_variance, masked_mean
from seedbed.ops.vtrace import vtrace_returns

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

Array = NDArray[Any]
T, B = 9, 6


def random_inputs(seed: int, masked: float = 0.2, ends: float = 0.2) -> dict[str, Array]:
    """A batch with terminal and masked transitions anywhere, also next to each other."""
    rng = np.random.default_rng(seed)
    value = rng.normal(size=(T + 1, B)).astype(np.float32)
    return {
        "log_rho_tm1": rng.normal(size=(T, B), scale=0.7).astype(np.float32),
        "discount_t": (0.9 * (rng.random((T, B)) >= ends)).astype(np.float32),
        "r_t": rng.normal(size=(T, B)).astype(np.float32),
        "v_tm1": value[:-1],
        "v_t": value[1:],
        "mask_t": (rng.random((T, B)) >= masked).astype(np.float32),
    }


def reference(
    inputs: dict[str, Array],
    lambda_: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    rho_bar_policy: float = 1.0,
) -> tuple[Array, Array]:
    """Equation (1): v_s = V(x_s) + sum over t >= s of (product of γ c over s..t-1) δ_t."""
    x = {name: array.astype(np.float64) for name, array in inputs.items()}
    rho = np.exp(x["log_rho_tm1"])
    vs, advantage = np.zeros((T, B)), np.zeros((T, B))
    for b in range(B):

        def delta(t: int, b: int = b) -> float:
            error = x["r_t"][t, b] + x["discount_t"][t, b] * x["v_t"][t, b]
            return float(x["mask_t"][t, b] * min(rho_bar, rho[t, b]) * (error - x["v_tm1"][t, b]))

        for s in range(T):
            total = x["v_tm1"][s, b]
            for t in range(s, T):
                product = 1.0
                for i in range(s, t):
                    c = x["mask_t"][i, b] * lambda_ * min(c_bar, rho[i, b])
                    product *= x["discount_t"][i, b] * c
                total += product * delta(t)
            vs[s, b] = total
        for s in range(T):
            after = vs[s + 1, b] if s + 1 < T else x["v_t"][s, b]
            target = x["r_t"][s, b] + x["discount_t"][s, b] * after
            weight = x["mask_t"][s, b] * min(rho_bar_policy, rho[s, b])
            advantage[s, b] = weight * (target - x["v_tm1"][s, b])
    return vs, advantage


def run(inputs: dict[str, Array], **options: float) -> tuple[Array, Array]:
    tensors = {name: ops.convert_to_tensor(array) for name, array in inputs.items()}
    result = vtrace_returns(**tensors, **options)
    return ops.convert_to_numpy(result.vs), ops.convert_to_numpy(result.pg_advantage)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lambda_": 0.9},
        {"rho_bar": 2.5, "c_bar": 1.5, "rho_bar_policy": 3.0},
        {"rho_bar": 0.7, "c_bar": 0.5, "lambda_": 0.5, "rho_bar_policy": 0.6},
    ],
)
def test_equals_equation_1(options: dict[str, float]) -> None:
    for seed in range(5):
        inputs = random_inputs(seed)
        for got, wanted in zip(run(inputs, **options), reference(inputs, **options), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_on_policy_lambda_1_is_the_n_step_return() -> None:
    inputs = random_inputs(1, masked=0.0)
    inputs["log_rho_tm1"] = np.zeros((T, B), np.float32)
    target = inputs["v_t"][-1].astype(np.float64)
    for t in reversed(range(T)):
        target = inputs["r_t"][t] + inputs["discount_t"][t] * target
        np.testing.assert_allclose(run(inputs)[0][t], target, rtol=1e-5, atol=1e-5)


def test_on_policy_lambda_0_is_one_step() -> None:
    inputs = random_inputs(2, masked=0.0)
    inputs["log_rho_tm1"] = np.zeros((T, B), np.float32)
    vs, _ = run(inputs, lambda_=0.0)
    one_step = inputs["r_t"] + inputs["discount_t"] * inputs["v_t"]
    np.testing.assert_allclose(vs, one_step, rtol=1e-5, atol=1e-5)


def test_columns_do_not_touch_each_other() -> None:
    inputs = random_inputs(3)
    together = run(inputs, lambda_=0.9)
    for b in range(B):
        alone = run({name: array[:, b : b + 1] for name, array in inputs.items()}, lambda_=0.9)
        for one, all_ in zip(alone, together, strict=True):
            np.testing.assert_allclose(one[:, 0], all_[:, b], rtol=1e-6, atol=1e-6)


def test_a_masked_transition_stops_everything() -> None:
    """What lies behind it, however large, changes nothing before it; `vs = V` on it."""
    inputs = random_inputs(4, masked=0.0, ends=0.0)
    inputs["mask_t"][4] = 0.0
    vs, advantage = run(inputs)
    np.testing.assert_array_equal(vs[4], inputs["v_tm1"][4])
    np.testing.assert_array_equal(advantage[4], np.zeros(B))
    for name in ("r_t", "v_t", "log_rho_tm1"):
        changed = {key: array.copy() for key, array in inputs.items()}
        changed[name][4:] += 10.0
        vs_changed, advantage_changed = run(changed)
        np.testing.assert_array_equal(vs_changed[:4], vs[:4])
        np.testing.assert_array_equal(advantage_changed[:4], advantage[:4])


def test_shapes_that_differ_are_refused() -> None:
    inputs = random_inputs(5)
    inputs["mask_t"] = inputs["mask_t"][:-1]
    with pytest.raises(ValueError, match="one shape"):
        run(inputs)


# In a process of its own: rlax brings a library that cannot be imported after TensorFlow, which
# other tests of this process may have loaded.
RLAX = """
import sys
import jax, numpy as np, rlax
folder, *lambdas = sys.argv[1:]
given = np.load(folder + "/given.npz")
for lambda_ in lambdas:
    def one(v_tm1, v_t, r, d, rho):
        return rlax.vtrace_td_error_and_advantage(v_tm1, v_t, r, d, rho, float(lambda_))
    wanted = jax.vmap(one, in_axes=1, out_axes=1)(
        given["v_tm1"], given["v_t"], given["r_t"], given["discount_t"],
        np.exp(given["log_rho_tm1"]),
    )
    file = folder + "/wanted-" + lambda_ + ".npz"
    np.savez(file, errors=wanted.errors, advantage=wanted.pg_advantage)
"""


@pytest.mark.slow_on_jax
def test_equals_rlax(backend: Backend, tmp_path: Path) -> None:
    if backend.name != "jax":
        pytest.skip("rlax needs JAX")
    inputs = random_inputs(6, masked=0.0)
    np.savez(tmp_path / "given.npz", **inputs)
    command = [sys.executable, "-c", RLAX, tmp_path, "1.0", "0.8"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for lambda_ in (1.0, 0.8):
        wanted = np.load(tmp_path / f"wanted-{lambda_}.npz")
        vs, advantage = run(inputs, lambda_=lambda_)
        np.testing.assert_allclose(vs - inputs["v_tm1"], wanted["errors"], rtol=1e-5, atol=1e-5)
        if lambda_ == 1.0:  # with another λ, rlax mixes V into the advantage's target
            np.testing.assert_allclose(advantage, wanted["advantage"], rtol=1e-5, atol=1e-5)


def test_masked_statistics() -> None:
    rng = np.random.default_rng(0)
    value, target = (rng.normal(size=(5, 4)).astype(np.float32) for _ in range(2))
    mask = (rng.random((5, 4)) < 0.6).astype(np.float32)
    real = mask == 1
    np.testing.assert_allclose(
        masked_mean(ops.convert_to_tensor(value), ops.convert_to_tensor(mask)),
        value[real].mean(),
        rtol=1e-5,
    )
    assert float(masked_mean(ops.ones((2, 2)), ops.zeros((2, 2)))) == 0.0
    np.testing.assert_allclose(
        explained_variance(*(ops.convert_to_tensor(x) for x in (target, value, mask))),
        1 - np.var((target - value)[real]) / np.var(target[real]),
        rtol=1e-4,
    )
