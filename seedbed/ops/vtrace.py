"""V-trace (Espeholt et al. 2018, "IMPALA", section 4.1), with rows that belong to no episode."""

from __future__ import annotations

from typing import NamedTuple

from keras import ops

from seedbed import backends
from seedbed.types import Tensor


class VtraceReturns(NamedTuple):
    """Targets, both without gradient."""

    vs: Tensor  # [T, B], what V(x_t) is drawn to
    advantage: Tensor  # [T, B], the factor of log π(a_t) in the policy gradient


def vtrace_returns(
    log_rho: Tensor,
    discount_t: Tensor,
    reward_t: Tensor,
    value_tm1: Tensor,
    value_t: Tensor,
    mask: Tensor,
    *,
    trace_lambda: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    rho_bar_policy: float = 1.0,
) -> VtraceReturns:
    """V-trace targets and advantages of T transitions, each from x_{t-1} to x_t.

    Equation (1) of Espeholt et al. 2018 in its recursive form (their remark 1), with λ from
    remark 2 and m for the mask:

        ρ = min(ρ̄, π/μ),   c = λ min(c̄, π/μ)
        δ_t  = m_t ρ_t (r_t + γ_t V(x_t) - V(x_{t-1}))
        vs_{t-1} = V(x_{t-1}) + δ_t + m_t γ_t c_t (vs_t - V(x_t)),   vs_T = V(x_T)

    and the advantage of section 4.2, `m_t min(ρ̄_pg, π/μ) (r_t + γ_t vs_t - V(x_{t-1}))`.

    A masked transition (out of an episode's finished row) is no step of any episode: there
    `vs = V`, so that an episode that was cut bootstraps from its own last value. A terminal
    step has γ = 0 and bootstraps from nothing.

    Args:
        log_rho: [T, B] float32, log π(a|x) - log μ(a|x) of the action taken in x_{t-1}.
        discount_t: [T, B] float32, γ, or 0 where x_t is terminal.
        reward_t: [T, B] float32, what arrived with x_t.
        value_tm1: [T, B] float32, V(x_{t-1}).
        value_t: [T, B] float32, V(x_t).
        mask: [T, B] float32, 1 for real transitions and 0 for masked ones.
        trace_lambda: λ.
        rho_bar: ρ̄, truncates the weight of the temporal difference.
        c_bar: c̄, truncates the weight of the trace.
        rho_bar_policy: truncates the weight of the policy gradient.
    """
    _same_shape(log_rho, discount_t, reward_t, value_tm1, value_t, mask)
    log_rho, value_tm1, value_t = (
        ops.cast(array, "float32") for array in (log_rho, value_tm1, value_t)
    )
    rho = ops.exp(log_rho)
    gamma = discount_t * mask
    delta = mask * ops.minimum(rho, rho_bar) * (reward_t + gamma * value_t - value_tm1)
    decay = gamma * trace_lambda * ops.minimum(rho, c_bar)

    def backwards(error: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        delta_t, decay_t = row
        error = delta_t + decay_t * error
        return error, error

    _, error = backends.current().scan(
        backwards, ops.zeros_like(value_t[0]), (delta, decay), reverse=True
    )  # vs - V, [T, B]
    vs = value_tm1 + error
    # vs_t of transition t is the target of its destination: the next row's, or V at the end.
    vs_t = value_t + ops.concatenate([error[1:], ops.zeros_like(error[:1])], axis=0)
    weight = mask * ops.minimum(rho, rho_bar_policy)
    advantage = weight * (reward_t + gamma * vs_t - value_tm1)
    return VtraceReturns(ops.stop_gradient(vs), ops.stop_gradient(advantage))


def _same_shape(*arrays: Tensor) -> None:
    shapes = [tuple(array.shape) for array in arrays]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2:
        raise ValueError(f"V-trace takes arrays of one shape [T, B], given {shapes}")
