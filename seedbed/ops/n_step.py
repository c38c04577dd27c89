"""n-step returns over rows, some of which end an episode."""

from __future__ import annotations

from typing import Any

from seedbed import backends
from seedbed.types import Tensor


def n_step_returns(
    reward: Tensor, discount: Tensor, ends: Tensor, value: Tensor, n: int, xp: Any
) -> Tensor:
    """The n-step return of each transition (Sutton & Barto 2018, equation 7.1).

    From row t the rewards of the next n rows, discounted, and the value of the row after them;
    fewer where a row ends the episode, or the rows end. Such a row's own value bootstraps (a
    truncated episode, the last row), unless its discount is 0 (a terminated one).

    Args:
        reward: [R, B] float32, what arrived with the row.
        discount: [R, B] float32, γ, or 0 where the row is terminal.
        ends: [R, B] bool, rows that no transition leaves. The last row's is not read.
        value: [R, B] float32.
        n: steps, at least 1.
        xp: `keras.ops` or NumPy.

    Returns:
        [R-1, B] float32 for the transitions out of the rows 0 .. R-2. Of a row that ends an
        episode it is the row's value, and means nothing.
    """
    returns = value
    for _ in range(n):
        further = reward[1:] + discount[1:] * returns[1:]
        returns = xp.concatenate([xp.where(ends[:-1], value[:-1], further), value[-1:]], axis=0)
    return returns[:-1]


def bootstrapped_returns(reward: Tensor, discount: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """The return of each of T transitions as far as the rows go (Mnih et al. 2016, algorithm S3).

    From row t all rewards up to the last row, discounted, and that row's value: the n-step return
    with n = T - t. It ends where the episode does: a row that no transition leaves bootstraps from
    its own value (a truncated episode), unless the discount on the way to it is 0 (a terminated
    one). `n_step_returns` with n >= T is the same, in T times the work.

    Args:
        reward: [T, B] float32, what arrived with row t + 1.
        discount: [T, B] float32, γ, or 0 where row t + 1 is terminal.
        mask: [T, B] float32, 1 where a transition leaves row t, else 0.
        value: [T+1, B] float32.

    Returns:
        [T, B] float32. Where the mask is 0 it is the row's value, and means nothing.
    """

    def backwards(
        further: Tensor, row: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        reward_t, discount_t, mask_t, value_t = row
        returns = mask_t * (reward_t + discount_t * further) + (1.0 - mask_t) * value_t
        return returns, returns

    _, returns = backends.current().scan(
        backwards, value[-1], (reward, discount, mask, value[:-1]), reverse=True
    )
    return returns
