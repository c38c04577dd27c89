"""`seedbed.ops` from outside, as a notebook uses it: NumPy arrays, the backend by KERAS_BACKEND."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from seedbed.runtime.install import installed_backends

PROGRAM = """
import sys
import numpy as np
import seedbed
assert "keras" not in sys.modules
from seedbed import ops

rng = np.random.default_rng(0)
T, B = 7, 3
values = rng.normal(size=(T + 1, B))
r_t, log_rho_tm1 = rng.normal(size=(2, T, B))
discount_t = 0.9 * (rng.random((T, B)) < 0.8)
mask_t = (rng.random((T, B)) < 0.8).astype("float32")

vs, pg_advantage = ops.vtrace_returns(
    values[:-1], values[1:], r_t, discount_t, log_rho_tm1, mask_t, lambda_=0.9
)
error = np.zeros(B)
for t in reversed(range(T)):
    rho = np.minimum(np.exp(log_rho_tm1[t]), 1.0)
    next_vs = values[t + 1] + error
    target = r_t[t] + discount_t[t] * next_vs
    np.testing.assert_allclose(pg_advantage[t], mask_t[t] * rho * (target - values[t]), atol=1e-5)
    delta = r_t[t] + discount_t[t] * values[t + 1] - values[t]
    error = mask_t[t] * rho * (delta + 0.9 * discount_t[t] * error)
    np.testing.assert_allclose(vs[t], values[t] + error, atol=1e-5)

given = r_t, discount_t, mask_t, values
np.testing.assert_allclose(
    ops.bootstrapped_returns(*given), ops.n_step_returns(*given, n=T), atol=1e-5
)
np.testing.assert_allclose(ops.n_step_returns(*given, n=3), ops.n_step_returns(*given, 3, np))
np.testing.assert_allclose(
    ops.signed_parabolic(ops.signed_hyperbolic(r_t, 1e-3), 1e-3), r_t, rtol=1e-4
)
assert ops.stack_unroll(np.ones((5, B, 4)), np.zeros((5, B), bool), 2).shape == (4, B, 8)
assert abs(float(ops.explained_variance(r_t, values[1:], mask_t))) < 1e3
assert abs(float(ops.masked_mean(r_t, mask_t)) - r_t[mask_t > 0].mean()) < 1e-5
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_on_numpy_arrays(backend: str) -> None:
    if backend not in installed_backends():
        pytest.skip(f"{backend} is not installed")
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.backends
@pytest.mark.usefixtures("backend")
def test_integers_are_refused() -> None:
    from seedbed import ops

    floats, integers = np.zeros((2, 1), np.float32), np.zeros((2, 1), np.int32)
    with pytest.raises(TypeError, match=r"floating point.*'r_t': 'int32'"):
        ops.vtrace_returns(floats, floats, integers, floats, floats, floats)
