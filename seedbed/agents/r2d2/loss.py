"""n-step double Q-learning on rescaled values, over sequences (Kapturowski et al. 2019).

Section 3.2 and Table 8 of the SEED paper. Written once for `keras.ops` and NumPy: the loss runs on
the device, the first priorities of a sequence on the host, from what acting computed.
"""

from __future__ import annotations

from typing import Any

from keras import ops

from seedbed.agents.protocol import Unroll
from seedbed.agents.r2d2.config import QLearning
from seedbed.ops.masked import masked_mean
from seedbed.ops.n_step import n_step_returns
from seedbed.ops.rescaling import rescale, unscale
from seedbed.types import Tensor

# A sequence whose errors are all 0 shall be seen again some day.
SMALLEST_PRIORITY = 1e-6


def td_errors(
    chosen: Tensor, bootstrap: Tensor, reward: Tensor, ends: Tensor, first: Tensor,
    options: QLearning, xp: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The temporal difference errors of R-1 transitions, on rescaled values.

    Args:
        chosen: [R-1, B] float32, Q(x_t, a_t).
        bootstrap: [R, B] float32, the Q that a window bootstraps from.
        reward: [R, B] float32, raw.
        ends: [R, B] bool, rows after which there is nothing to come.
        first: [R, B] bool.
        options: the hyperparameters.
        xp: `keras.ops` or NumPy.

    Returns:
        Errors, target minus `chosen`, 0 where masked, and the mask, 1 for real transitions; both
        [R-1, B] float32.
    """
    if options.reward_clip:
        reward = xp.clip(reward, -options.reward_clip, options.reward_clip)
    discount = xp.where(ends, 0.0, options.discount)
    # After an episode's last row, and a row whose episode was cut, comes a first one.
    last = xp.concatenate([first[1:], xp.zeros_like(first[:1])], axis=0)
    value = unscale(bootstrap, options.value_rescaling_epsilon, xp)
    returns = n_step_returns(reward, discount, last, value, options.n_steps, xp)
    target = rescale(returns, options.value_rescaling_epsilon, xp)
    mask = xp.where(first[1:], 0.0, 1.0)
    return (target - chosen) * mask, mask


def sequence_priority(errors: Tensor, mask: Tensor, eta: float, xp: Any) -> Tensor:
    """p = η max|δ| + (1 - η) mean|δ| over a sequence's real transitions (Table 8).

    Args:
        errors: [T, B] float32, 0 where masked.
        mask: [T, B] float32.
        eta: η.
        xp: `keras.ops` or NumPy.

    Returns:
        [B] float32, above 0.
    """
    size = xp.abs(errors)
    real = xp.maximum(xp.sum(mask, axis=0), 1.0)
    priority = eta * xp.max(size, axis=0) + (1.0 - eta) * xp.sum(size, axis=0) / real
    return xp.maximum(priority, SMALLEST_PRIORITY)


def q_loss(
    q: Tensor, target_q: Tensor, unroll: Unroll, trained: int, weight: Tensor, options: QLearning
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Half the squared errors, summed over a sequence, weighted, and averaged over the batch.

    Args:
        q: [R, B, A] float32, by the parameters that are trained. Rows from `trained` on only say
            which action is best.
        target_q: [R, B, A] float32, by the target network.
        unroll: the same R rows.
        trained: T, transitions that count, from row 0 on. Further rows only complete windows.
        weight: [B] float32, importance weights.
        options: the hyperparameters.

    Returns:
        The loss, scalars to log, and the new priorities [B] float32.
    """
    chosen = _of_action(q[:-1], unroll.action)
    # Double Q-learning (van Hasselt et al. 2016): one network chooses, the other one values.
    best = ops.argmax(q if options.double_q else target_q, axis=-1)
    bootstrap = ops.stop_gradient(_of_action(target_q, best))
    ends = unroll.terminated
    if options.life_loss_ends:
        ends = ends | unroll.life_lost
    # The target has no gradient: all it reads of q is which action is best.
    errors, mask = td_errors(chosen, bootstrap, unroll.reward, ends, unroll.first, options, ops)
    errors, mask, chosen = errors[:trained], mask[:trained], chosen[:trained]
    loss = ops.mean(weight * 0.5 * ops.sum(ops.square(errors), axis=0))
    priority = sequence_priority(ops.stop_gradient(errors), mask, options.max_priority_weight, ops)
    size = ops.abs(errors)
    return (
        loss,
        {
            "td_error_mean": masked_mean(size, mask),
            "td_error_max": ops.max(size),
            "q_mean": masked_mean(chosen, mask),
            "q_max": ops.max(q[:trained]),
            "priority_mean": ops.mean(priority),
            "importance_weight_min": ops.min(weight),
            "unmasked": ops.mean(mask),
        },
        priority,
    )


def _of_action(q: Tensor, action: Tensor) -> Tensor:
    """[..., A] and [...] int to the action's value [...]."""
    return ops.sum(q * ops.one_hot(action, q.shape[-1], dtype="float32"), axis=-1)
