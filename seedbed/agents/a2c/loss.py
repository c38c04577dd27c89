"""The loss of synchronous advantage actor-critic: Mnih et al. 2016, section 4 and algorithm S3,
with the batch of Stooke and Abbeel 2018, section 4.1: every environment's unroll, one update.
"""

from __future__ import annotations

from keras import ops

from seedbed.agents.a2c.config import Options
from seedbed.agents.policy import chosen, transitions
from seedbed.agents.protocol import Unroll
from seedbed.ops.masked import explained_variance, masked_mean
from seedbed.ops.n_step import bootstrapped_returns
from seedbed.types import Tensor


def a2c_loss(
    logits: Tensor, value: Tensor, unroll: Unroll, options: Options
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient, half squared error of the value and entropy bonus.

    Row t's return goes on to row T, or to the end of its episode, and its advantage is what it
    has over V(x_t). All three are means over the batch's real transitions, so that masked ones
    neither count nor dilute. The square's half is the convention of `vtrace_loss`, which on
    unrolls of the newest parameters, with λ = ρ̄ = c̄ = 1, is this loss. Where a value coefficient
    is meant for the whole squared error, as 0.5 in OpenAI's Baselines, `baseline_cost` is its
    double.

    Args:
        logits: [R, B, A] float32; the last row is not used.
        value: [R, B] float32.
        unroll: see `agents.protocol.Unroll`; `behaviour["logits"]` is [T, B, A].
        options: the hyperparameters.
    """
    logits = ops.cast(logits, "float32")[:-1]  # [T, B, A]
    value = ops.cast(value, "float32")
    mask, discount, reward = transitions(unroll, options)
    returns = ops.stop_gradient(bootstrapped_returns(reward, discount, mask, value))  # [T, B]
    advantage = returns - ops.stop_gradient(value[:-1])

    log_policy = ops.log_softmax(logits, axis=-1)
    log_prob = chosen(log_policy, unroll.action)  # [T, B]
    entropy = masked_mean(-ops.sum(ops.exp(log_policy) * log_policy, axis=-1), mask)
    policy_loss = -masked_mean(advantage * log_prob, mask)
    baseline_loss = 0.5 * masked_mean(ops.square(returns - value[:-1]), mask)
    loss = policy_loss + options.baseline_cost * baseline_loss - options.entropy_cost * entropy
    behaviour = ops.cast(unroll.behaviour["logits"], "float32")
    log_rho = log_prob - chosen(ops.log_softmax(behaviour, axis=-1), unroll.action)
    return loss, {
        "policy_loss": policy_loss,
        "baseline_loss": baseline_loss,
        "entropy": entropy,
        # How far from on-policy the batch is: 0 but for rounding.
        "log_rho_max": ops.max(ops.abs(log_rho) * mask),
        "value_mean": masked_mean(value[:-1], mask),
        "return_mean": masked_mean(returns, mask),
        "advantage_mean": masked_mean(advantage, mask),
        "explained_variance": explained_variance(returns, value[:-1], mask),
        "unmasked": ops.mean(mask),
    }
