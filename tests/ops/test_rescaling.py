"""Value rescaling: an inverse that float32 can bear."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.ops.rescaling import signed_hyperbolic, signed_parabolic

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]

SIZES = np.geomspace(1e-6, 1e6, 200)
X = np.concatenate([-SIZES[::-1], [0.0], SIZES])


def on_device(function: Any, x: NDArray[Any], epsilon: float) -> NDArray[Any]:
    result = function(ops.convert_to_tensor(x.astype(np.float32)), epsilon, ops)
    return ops.convert_to_numpy(result)


def h(x: NDArray[Any], epsilon: float) -> NDArray[Any]:
    """The published formula, in float64."""
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x


def h_inverse(x: NDArray[Any], epsilon: float) -> NDArray[Any]:
    """By bisection: h grows."""
    low, high = np.full_like(x, -1e13), np.full_like(x, 1e13)
    for _ in range(200):
        middle = (low + high) / 2
        below = h(middle, epsilon) < x
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1.0])
def test_it_is_the_published_function(epsilon: float) -> None:
    # √(x + 1) - 1 loses what 1 swallows: an absolute error of float32's last place.
    np.testing.assert_allclose(
        on_device(signed_hyperbolic, X, epsilon), h(X, epsilon), rtol=1e-5, atol=2e-7
    )


@pytest.mark.parametrize("epsilon", [1e-3, 1e-2, 1.0])
def test_the_inverse_is_right_to_float32(epsilon: float) -> None:
    """Also for small values, where the published form of it is not."""
    y = X[np.abs(X) < 1e4].astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(
        on_device(signed_parabolic, y, epsilon), h_inverse(y, epsilon), rtol=3e-6, atol=1e-12
    )


def test_there_and_back() -> None:
    back = on_device(signed_parabolic, on_device(signed_hyperbolic, X, 1e-3), 1e-3)
    np.testing.assert_allclose(back, X, rtol=2e-5, atol=1e-6)


def test_no_epsilon_is_no_rescaling() -> None:
    for function in (signed_hyperbolic, signed_parabolic):
        np.testing.assert_array_equal(on_device(function, X, 0.0), X.astype(np.float32))


def test_on_the_host_it_is_the_same() -> None:
    x = X.astype(np.float32)
    for function in (signed_hyperbolic, signed_parabolic):
        np.testing.assert_allclose(function(x, 1e-3, np), on_device(function, X, 1e-3), rtol=1e-5)
