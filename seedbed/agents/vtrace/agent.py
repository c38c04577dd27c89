"""The V-trace agent (Espeholt et al. 2018, arXiv:1802.01561, section 4.2).

It is an actor-critic that corrects for the lag of the policy that acted.
"""

from keras import ops
from pydantic import BaseModel
from typing_extensions import override

from seedbed.agents.actor_critic import ActorCriticAgent, actor_critic_loss, loss_inputs
from seedbed.agents.distributions import Distribution
from seedbed.agents.protocol import Unroll
from seedbed.agents.vtrace.options import VtraceOptions
from seedbed.ops.masked import masked_mean
from seedbed.ops.vtrace import vtrace_returns
from seedbed.types import Tensor


class VtraceAgent(ActorCriticAgent):
    """An actor-critic with `vtrace_loss`."""

    Options: type[BaseModel] = VtraceOptions

    @override
    def objective(
        self, logits: Tensor, values: Tensor, unroll: Unroll
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return vtrace_loss(logits, values, unroll, self.options, self.policy)


def vtrace_loss(
    logits: Tensor,
    values: Tensor,
    unroll: Unroll,
    options: VtraceOptions,
    policy: Distribution | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return `actor_critic_loss` on V-trace targets, and scalars to log.

    Args:
        logits: [R, B, P] float32; the last step's are not used.
        values: [R, B] float32.
        unroll: the batch; `behaviour["logits"]` is [T, B, P].
        options: the hyperparameters.
        policy: the distribution of the logits; None for a softmax.
    """
    inputs = loss_inputs(logits, values, unroll, options, policy)
    returns = vtrace_returns(
        inputs.v_tm1,
        inputs.v_t,
        inputs.r_t,
        inputs.discount_t,
        inputs.log_rho_tm1,
        inputs.mask_t,
        lambda_=options.trace_lambda,
        rho_bar=options.rho_bar,
        c_bar=options.c_bar,
        rho_bar_policy=options.rho_bar_policy,
    )
    loss, scalars = actor_critic_loss(inputs, returns.vs, returns.pg_advantage, options)
    rho = ops.exp(inputs.log_rho_tm1) * inputs.mask_t
    return loss, {
        **scalars,
        "rho_mean": masked_mean(rho, inputs.mask_t),
        "rho_max": ops.max(rho),
        "vs_mean": masked_mean(returns.vs, inputs.mask_t),
    }
