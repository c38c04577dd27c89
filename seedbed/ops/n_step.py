"""n-step returns over transitions, some of which belong to no episode.

Transition t goes from x_{t-1} to x_t. A masked one (out of an episode's last step) is no step of
any episode: its return is V(x_{t-1}), so that an episode that was cut bootstraps from its own last
value. A terminal step has γ = 0 and bootstraps from nothing.
"""

from typing import Any

from keras import ops

from seedbed.ops.checks import check_floats
from seedbed.ops.recurrence import accumulated
from seedbed.types import Tensor


def n_step_returns(
    r_t: Tensor, discount_t: Tensor, mask_t: Tensor, values: Tensor, n: int, xp: Any = ops
) -> Tensor:
    """Return the n-step return of each transition (Sutton & Barto 2018, equation 7.1).

    It is the sum of the discounted rewards of n transitions and the value at their end. There are
    fewer than n where an episode ends, or the transitions end.

    Args:
        r_t: [T, B] float, the reward that arrived with x_t.
        discount_t: [T, B] float, γ, or 0 where x_t is terminal.
        mask_t: [T, B] float, 1 for real transitions and 0 for masked ones.
        values: [T+1, B] float, V(x_0) to V(x_T).
        n: transitions, at least 1.
        xp: `keras.ops` or NumPy.

    Returns:
        [T, B] float.

    Raises:
        ValueError: the shapes differ.
        TypeError: an array is not of floating point.
    """
    v_tm1, v_t = values[:-1], values[1:]
    check_floats(r_t=r_t, discount_t=discount_t, mask_t=mask_t, v_t=v_t)
    is_real = mask_t > 0
    returns_t = v_t
    # Prepend one reward n times.
    for _ in range(n):
        returns_tm1 = xp.where(is_real, r_t + discount_t * returns_t, v_tm1)
        returns_t = xp.concatenate([returns_tm1[1:], values[-1:]], axis=0)
    return returns_tm1


def returns_so_far(r_t: Tensor, discount_t: Tensor, mask_t: Tensor) -> Tensor:
    """Return each transition's discounted return up to it: R_t = m_t (r_t + γ_{t-1} R_{t-1}).

    Args:
        r_t: [T, B] float, the reward that arrived with x_t.
        discount_t: [T, B] float, γ, or 0 where x_t is terminal.
        mask_t: [T, B] float, 1 for real transitions and 0 for masked ones.

    Returns:
        [T, B] float32.
    """
    check_floats(r_t=r_t, discount_t=discount_t, mask_t=mask_t)
    r_t, discount_t, mask_t = (ops.cast(x, "float32") for x in (r_t, discount_t, mask_t))
    # What is carried over to each transition.
    discount_tm1 = ops.concatenate([ops.zeros_like(discount_t[:1]), discount_t[:-1]], axis=0)
    return accumulated(mask_t * r_t, mask_t * discount_tm1)


def bootstrapped_returns(r_t: Tensor, discount_t: Tensor, mask_t: Tensor, values: Tensor) -> Tensor:
    """Return each transition's return up to the last one (Mnih et al. 2016, algorithm S3).

    `n_step_returns` with n >= T is the same, in T times the work.

    Args:
        r_t: [T, B] float, the reward that arrived with x_t.
        discount_t: [T, B] float, γ, or 0 where x_t is terminal.
        mask_t: [T, B] float, 1 for real transitions and 0 for masked ones.
        values: [T+1, B] float, V(x_0) to V(x_T).

    Returns:
        [T, B] float32.

    Raises:
        ValueError: the shapes differ.
        TypeError: an array is not of floating point.
    """
    check_floats(r_t=r_t, discount_t=discount_t, mask_t=mask_t, v_t=values[1:])
    r_t, discount_t, mask_t, values = (
        ops.cast(x, "float32") for x in (r_t, discount_t, mask_t, values)
    )

    own, carried = mask_t * r_t + (1.0 - mask_t) * values[:-1], mask_t * discount_t
    # The last transition's return goes on with the last value.
    own = ops.concatenate([own[:-1], own[-1:] + carried[-1:] * values[-1:]], axis=0)
    return accumulated(own, carried, reverse=True)
