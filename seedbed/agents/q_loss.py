"""n-step double Q-learning on rescaled values, over sequences (R2D2, Kapturowski et al. 2019).

Section 3.2 and Table 8 of the SEED paper (arXiv:1910.06591). `td_errors` and `sequence_priority`
take `keras.ops` or NumPy: the loss runs on the device, a sequence's initial priority is computed on
the host from what acting recorded.
"""

from typing import Any

from keras import ops

from seedbed.agents.options import QLearningOptions
from seedbed.agents.protocol import SequenceWindow, Unroll
from seedbed.agents.rewards import clip_reward
from seedbed.ops.masked import masked_mean
from seedbed.ops.n_step import n_step_returns
from seedbed.ops.rescaling import signed_hyperbolic, signed_parabolic
from seedbed.types import Tensor

# A sequence whose errors are all 0 must still be sampled at some time.
SMALLEST_PRIORITY = 1e-6


def td_errors(
    q_tm1: Tensor,
    bootstrap_q: Tensor,
    steps: Unroll | SequenceWindow,
    options: QLearningOptions,
    xp: Any,
) -> tuple[Tensor, Tensor]:
    """Return the temporal difference errors of R-1 transitions on rescaled values.

    Args:
        q_tm1: [R-1, B] float32, Q(x_{t-1}, a_{t-1}).
        bootstrap_q: [R, B] float32, the Q that a target bootstraps from at each step.
        steps: the R steps, of which the rewards and the flags count.
        options: the hyperparameters.
        xp: `keras.ops` or NumPy.

    Returns:
        Errors, target minus `q_tm1`, 0 where masked; and the mask, 1 for real transitions. Both
        [R-1, B] float32.
    """
    # Clip the rewards; find the transitions that are real, and those that bootstrap.
    reward, terminal = steps.reward, steps.terminated
    if options.life_loss_ends:
        terminal = terminal | steps.life_lost
    reward = clip_reward(reward, options, xp)
    discount_t = xp.where(terminal[1:], 0.0, options.discount)
    # After an episode's last step, terminated or cut, comes a first one.
    mask_t = xp.where(steps.first[1:], 0.0, 1.0)

    # Compute the n-step targets on the original scale.
    epsilon = options.value_rescaling_epsilon
    values = signed_parabolic(bootstrap_q, epsilon, xp)
    returns = n_step_returns(reward[1:], discount_t, mask_t, values, options.n_steps, xp)

    # Compare on the rescaled one.
    return (signed_hyperbolic(returns, epsilon, xp) - q_tm1) * mask_t, mask_t


def sequence_priority(errors: Tensor, mask: Tensor, max_weight: float, xp: Any) -> Tensor:
    """Return p = η max|δ| + (1 - η) mean|δ| over each sequence's real transitions (Table 8).

    Args:
        errors: [T, B] float32, δ, 0 where masked.
        mask: [T, B] float32.
        max_weight: η.
        xp: `keras.ops` or NumPy.

    Returns:
        [B] float32, above 0.
    """
    size = xp.abs(errors)
    real = xp.maximum(xp.sum(mask, axis=0), 1.0)
    priority = max_weight * xp.max(size, axis=0) + (1.0 - max_weight) * xp.sum(size, axis=0) / real
    return xp.maximum(priority, SMALLEST_PRIORITY)


def q_loss(
    online_q: Tensor,
    target_q: Tensor,
    unroll: Unroll,
    trained: int,
    importance_weight: Tensor,
    options: QLearningOptions,
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Return half the squared errors, summed over a sequence, weighted, averaged over the batch.

    Args:
        online_q: [R, B, A] float32, by the trained parameters. From step `trained` on it only
            selects actions.
        target_q: [R, B, A] float32, by the target network.
        unroll: the same R steps.
        trained: T, transitions that count, from step 0 on. Further steps only complete targets.
        importance_weight: [B] float32.
        options: the hyperparameters.

    Returns:
        The loss, scalars to log, and the new priorities [B] float32.
    """
    q_tm1 = _q_of(unroll.action, online_q[:-1])

    # Double Q-learning (van Hasselt et al. 2016, arXiv:1509.06461): one network selects the action,
    # the other one values it. The target has no gradient.
    selector_q = online_q if options.double_q else target_q
    bootstrap_q = ops.stop_gradient(_q_of(ops.argmax(selector_q, axis=-1), target_q))

    # Compute the errors of all transitions; keep the trained ones.
    errors, mask = td_errors(q_tm1, bootstrap_q, unroll, options, ops)
    errors, mask, q_tm1 = errors[:trained], mask[:trained], q_tm1[:trained]

    loss = ops.mean(importance_weight * 0.5 * ops.sum(ops.square(errors), axis=0))
    priority = sequence_priority(ops.stop_gradient(errors), mask, options.max_priority_weight, ops)
    size = ops.abs(errors)
    scalars = {
        "td_error_mean": masked_mean(size, mask),
        "td_error_max": ops.max(size),
        "q_mean": masked_mean(q_tm1, mask),
        "q_max": ops.max(online_q[:trained]),
        "priority_mean": ops.mean(priority),
        "importance_weight_min": ops.min(importance_weight),
        "unmasked": ops.mean(mask),
    }
    return loss, scalars, priority


def _q_of(action: Tensor, q: Tensor) -> Tensor:
    """Return the values [...] of actions [...] int under q [..., A]."""
    return ops.sum(q * ops.one_hot(action, q.shape[-1], dtype="float32"), axis=-1)
