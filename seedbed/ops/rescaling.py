"""Value function rescaling (Pohlen et al. 2018, arXiv:1805.11593, section 3.2)."""

from typing import Any

from keras import ops

from seedbed.types import Tensor


def signed_hyperbolic(x: Tensor, epsilon: float, xp: Any = ops) -> Tensor:
    """Return h(x) = sign(x) (√(|x| + 1) - 1) + εx, elementwise.

    Args:
        x: any shape, float.
        epsilon: ε; 0 stands for no rescaling, h(x) = x.
        xp: `keras.ops` or NumPy.
    """
    if not epsilon:
        return x
    return xp.sign(x) * (xp.sqrt(xp.abs(x) + 1.0) - 1.0) + epsilon * x


def signed_parabolic(x: Tensor, epsilon: float, xp: Any = ops) -> Tensor:
    """Return the inverse of `signed_hyperbolic` (proposition A.2).

    The root of its quadratic equation is taken in a form that subtracts no nearly equal numbers:
    in float32 the published one is wrong by 0.03 % at x = 0.1, and by 6 % at 0.0001.

    Args:
        x: any shape, float.
        epsilon: ε; 0 stands for no rescaling.
        xp: `keras.ops` or NumPy.
    """
    if not epsilon:
        return x
    size = xp.abs(x)
    # z = √(|h⁻¹(x)| + 1) - 1 solves ε z² + (1 + 2ε) z - |x| = 0.
    linear = 1.0 + 2.0 * epsilon
    z = 2.0 * size / (linear + xp.sqrt(linear * linear + 4.0 * epsilon * size))
    return xp.sign(x) * z * (z + 2.0)
