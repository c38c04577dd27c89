"""The V-trace actor-critic loss (Espeholt et al. 2018, section 4.2)."""

from __future__ import annotations

from keras import ops

from seedbed.agents.policy import chosen, transitions
from seedbed.agents.protocol import Unroll
from seedbed.agents.vtrace.config import Options
from seedbed.ops.masked import explained_variance, masked_mean
from seedbed.ops.vtrace import vtrace_returns
from seedbed.types import Tensor


def vtrace_loss(
    logits: Tensor, value: Tensor, unroll: Unroll, options: Options
) -> tuple[Tensor, dict[str, Tensor]]:
    """Policy gradient, half squared error of the value and entropy bonus.

    All three are means over the batch's real transitions, so that masked ones neither count nor
    dilute. The square's half is the derivative's convention of IMPALA and SEED.

    Args:
        logits: [R, B, A] float32; the last row is not used.
        value: [R, B] float32.
        unroll: see `agents.protocol.Unroll`; `behaviour["logits"]` is [T, B, A].
        options: the hyperparameters.
    """
    logits = ops.cast(logits, "float32")[:-1]  # [T, B, A]
    value = ops.cast(value, "float32")
    mask, discount_t, reward_t = transitions(unroll, options)

    log_policy = ops.log_softmax(logits, axis=-1)
    log_prob = chosen(log_policy, unroll.action)  # [T, B]
    behaviour = ops.cast(unroll.behaviour["logits"], "float32")
    log_rho = log_prob - chosen(ops.log_softmax(behaviour, axis=-1), unroll.action)
    returns = vtrace_returns(
        log_rho,
        discount_t,
        reward_t,
        value[:-1],
        value[1:],
        mask,
        trace_lambda=options.trace_lambda,
        rho_bar=options.rho_bar,
        c_bar=options.c_bar,
        rho_bar_policy=options.rho_bar_policy,
    )
    entropy = masked_mean(-ops.sum(ops.exp(log_policy) * log_policy, axis=-1), mask)
    policy_loss = -masked_mean(returns.advantage * log_prob, mask)
    baseline_loss = 0.5 * masked_mean(ops.square(returns.vs - value[:-1]), mask)
    loss = policy_loss + options.baseline_cost * baseline_loss - options.entropy_cost * entropy
    rho = ops.exp(log_rho) * mask
    return loss, {
        "policy_loss": policy_loss,
        "baseline_loss": baseline_loss,
        "entropy": entropy,
        "rho_mean": masked_mean(rho, mask),
        "rho_max": ops.max(rho),
        "value_mean": masked_mean(value[:-1], mask),
        "vs_mean": masked_mean(returns.vs, mask),
        "advantage_mean": masked_mean(returns.advantage, mask),
        "explained_variance": explained_variance(returns.vs, value[:-1], mask),
        "unmasked": ops.mean(mask),
    }
