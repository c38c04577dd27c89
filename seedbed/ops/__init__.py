"""Pure functions of arrays, on the backend that Keras runs; each takes NumPy arrays too."""

from seedbed.ops.frame_stack import stack_step, stack_unroll, stacked_shape
from seedbed.ops.masked import explained_variance, masked_mean
from seedbed.ops.n_step import bootstrapped_returns, n_step_returns
from seedbed.ops.rescaling import signed_hyperbolic, signed_parabolic
from seedbed.ops.vtrace import VtraceReturns, vtrace_returns

__all__ = [
    "VtraceReturns",
    "bootstrapped_returns",
    "explained_variance",
    "masked_mean",
    "n_step_returns",
    "signed_hyperbolic",
    "signed_parabolic",
    "stack_step",
    "stack_unroll",
    "stacked_shape",
    "vtrace_returns",
]
