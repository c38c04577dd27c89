"""The A2C agent: synchronous advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783).

Section 4 and algorithm S3, with the batch of Stooke and Abbeel 2018 (arXiv:1803.02811), section
4.1: one unroll of every environment, one update.
"""

from keras import ops
from pydantic import BaseModel
from typing_extensions import override

from seedbed.agents.a2c.options import A2cOptions
from seedbed.agents.actor_critic import ActorCriticAgent, actor_critic_loss, loss_inputs
from seedbed.agents.distributions import Distribution
from seedbed.agents.protocol import Unroll
from seedbed.ops.masked import masked_mean
from seedbed.ops.n_step import bootstrapped_returns
from seedbed.types import Tensor


class A2cAgent(ActorCriticAgent):
    """An actor-critic with `a2c_loss`."""

    Options: type[BaseModel] = A2cOptions
    synchronous = A2cOptions.synchronous

    @override
    def objective(
        self, logits: Tensor, values: Tensor, unroll: Unroll
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return a2c_loss(logits, values, unroll, self.options, self.policy)


def a2c_loss(
    logits: Tensor,
    values: Tensor,
    unroll: Unroll,
    options: A2cOptions,
    policy: Distribution | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return `actor_critic_loss` on bootstrapped returns, and scalars to log.

    The return of step t reaches to step T, or to the end of its episode. Its advantage is its
    excess over V(x_t). On unrolls of the newest parameters, with λ = ρ̄ = c̄ = 1, `vtrace_loss` is
    the same.

    Args:
        logits: [R, B, P] float32; the last step's are not used.
        values: [R, B] float32.
        unroll: the batch; `behaviour["logits"]` is [T, B, P].
        options: the hyperparameters.
        policy: the distribution of the logits; None for a softmax.
    """
    inputs = loss_inputs(logits, values, unroll, options, policy)
    mask = inputs.mask_t

    # Targets and advantages without gradient, [T, B].
    values = ops.stop_gradient(ops.cast(values, "float32"))
    returns = bootstrapped_returns(inputs.r_t, inputs.discount_t, mask, values)
    advantage = returns - values[:-1]

    loss, scalars = actor_critic_loss(inputs, returns, advantage, options)
    return loss, {
        **scalars,
        # Distance of the batch from on-policy: 0 up to rounding.
        "log_rho_max": ops.max(ops.abs(inputs.log_rho_tm1) * mask),
        "target_mean": masked_mean(returns, mask),
    }
