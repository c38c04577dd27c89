"""V-trace (Espeholt et al. 2018, arXiv:1802.01561), with transitions that belong to no episode."""

from typing import NamedTuple

from keras import ops

from seedbed.ops.checks import check_floats
from seedbed.ops.recurrence import accumulated
from seedbed.types import Tensor


class VtraceReturns(NamedTuple):
    """Targets of T transitions, both without gradient."""

    vs: Tensor  # [T, B] float32, the target of V(x_{t-1})
    pg_advantage: Tensor  # [T, B] float32, the factor of log π(a_{t-1}) in the policy gradient


def vtrace_returns(
    v_tm1: Tensor,
    v_t: Tensor,
    r_t: Tensor,
    discount_t: Tensor,
    log_rho_tm1: Tensor,
    mask_t: Tensor,
    *,
    lambda_: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    rho_bar_policy: float = 1.0,
) -> VtraceReturns:
    """Return V-trace targets and advantages of T transitions, each from x_{t-1} to x_t.

    Equation (1) of section 4.1 in its recursive form (remark 1), with λ from remark 2 and m for
    the mask:

        ρ = min(ρ̄, π/μ),   c = λ min(c̄, π/μ)
        δ_t  = m_t ρ_t (r_t + γ_t V(x_t) - V(x_{t-1}))
        vs_{t-1} = V(x_{t-1}) + δ_t + m_t γ_t c_t (vs_t - V(x_t)),   vs_T = V(x_T)

    The advantage of section 4.2 is `m_t min(ρ̄_pg, π/μ) (r_t + γ_t vs_t - V(x_{t-1}))`.

    A masked transition (out of an episode's last step) is no step of any episode: there `vs = V`,
    so that an episode that was cut bootstraps from its own last value. A terminal step has γ = 0
    and bootstraps from nothing.

    Args:
        v_tm1: [T, B] float, V(x_{t-1}).
        v_t: [T, B] float, V(x_t).
        r_t: [T, B] float, the reward that arrived with x_t.
        discount_t: [T, B] float, γ, or 0 where x_t is terminal.
        log_rho_tm1: [T, B] float, log π(a|x) - log μ(a|x) of the action taken in x_{t-1}.
        mask_t: [T, B] float, 1 for real transitions and 0 for masked ones.
        lambda_: λ.
        rho_bar: ρ̄, truncates the importance weight of the temporal difference.
        c_bar: c̄, truncates the importance weight of the trace.
        rho_bar_policy: ρ̄_pg, truncates the importance weight of the policy gradient.

    Raises:
        ValueError: the shapes differ.
        TypeError: an array is not of floating point.
    """
    check_floats(
        v_tm1=v_tm1,
        v_t=v_t,
        r_t=r_t,
        discount_t=discount_t,
        log_rho_tm1=log_rho_tm1,
        mask_t=mask_t,
    )
    v_tm1, v_t, r_t, discount_t, log_rho_tm1, mask_t = (
        ops.cast(x, "float32") for x in (v_tm1, v_t, r_t, discount_t, log_rho_tm1, mask_t)
    )

    # Clip the importance weights.
    rho_tm1 = ops.exp(log_rho_tm1)
    clipped_rho_tm1 = ops.minimum(rho_tm1, rho_bar)
    c_tm1 = lambda_ * ops.minimum(rho_tm1, c_bar)

    # Compute the temporal differences.
    discount_t = discount_t * mask_t
    delta_t = mask_t * clipped_rho_tm1 * (r_t + discount_t * v_t - v_tm1)
    decay_t = discount_t * c_tm1

    # Accumulate them backwards: error = vs - V.
    error_tm1 = accumulated(delta_t, decay_t, reverse=True)
    vs_tm1 = v_tm1 + error_tm1

    # The target of x_t is the next transition's vs, or V at the end.
    vs_t = v_t + ops.concatenate([error_tm1[1:], ops.zeros_like(error_tm1[:1])], axis=0)
    pg_advantage = mask_t * ops.minimum(rho_tm1, rho_bar_policy) * (r_t + discount_t * vs_t - v_tm1)
    return VtraceReturns(ops.stop_gradient(vs_tm1), ops.stop_gradient(pg_advantage))
