"""The PPO agent: proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347)."""

from keras import ops
from pydantic import BaseModel
from typing_extensions import override

from seedbed.agents.actor_critic import ActorCriticAgent, actor_critic_loss, loss_inputs
from seedbed.agents.distributions import Distribution
from seedbed.agents.ppo.options import PpoOptions
from seedbed.agents.protocol import Unroll
from seedbed.ops.masked import masked_mean, standardized
from seedbed.ops.vtrace import vtrace_returns
from seedbed.types import Tensor


class PpoAgent(ActorCriticAgent):
    """An actor-critic with `ppo_loss`."""

    Options: type[BaseModel] = PpoOptions

    @override
    def objective(
        self, logits: Tensor, values: Tensor, unroll: Unroll
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return ppo_loss(logits, values, unroll, self.options, self.policy)


def ppo_loss(
    logits: Tensor,
    values: Tensor,
    unroll: Unroll,
    options: PpoOptions,
    policy: Distribution | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return `actor_critic_loss` on the clipped surrogate of equation (7), and scalars to log.

    The ratio r = π/μ refers to the policy μ that acted. The advantages A of Schulman et al. 2016
    (arXiv:1506.02438), equation (16), are computed from the newest values, in every pass anew. The
    target of a value is its λ-return, A + V.

    Args:
        logits: [R, B, P] float32; the last step's are not used.
        values: [R, B] float32.
        unroll: the batch; `behaviour["logits"]` is [T, B, P].
        options: the hyperparameters.
        policy: the distribution of the logits; None for a softmax.
    """
    inputs = loss_inputs(logits, values, unroll, options, policy)
    mask, log_rho = inputs.mask_t, inputs.log_rho_tm1

    # V-trace with all importance weights at 1 is the λ-return.
    returns = vtrace_returns(
        inputs.v_tm1,
        inputs.v_t,
        inputs.r_t,
        inputs.discount_t,
        ops.zeros_like(log_rho),
        mask,
        lambda_=options.gae_lambda,
    ).vs
    advantage = ops.stop_gradient(returns - inputs.v_tm1)  # [T, B]
    if options.normalize_advantages:
        advantage = standardized(advantage, mask)

    ratio = ops.exp(log_rho)
    clipped = ops.clip(ratio, 1.0 - options.clip_range, 1.0 + options.clip_range)
    surrogate = ops.minimum(ratio * advantage, clipped * advantage)

    loss, scalars = actor_critic_loss(inputs, returns, advantage, options, surrogate)
    is_clipped = ops.cast(ops.abs(ratio - 1.0) > options.clip_range, "float32")
    return loss, {
        **scalars,
        "clip_fraction": masked_mean(is_clipped, mask),
        # KL(μ‖π), by the estimate r - 1 - log r, which is never negative.
        "kl": masked_mean(ratio - 1.0 - log_rho, mask),
        "return_mean": masked_mean(returns, mask),
    }
