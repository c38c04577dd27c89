"""First-order linear recurrences along time, in few operations.

A loop over T steps is T times as many short operations as one step, which cost more than they
compute: a third of a small network's update where T is 20.
"""

from keras import ops

from seedbed.types import Tensor


def accumulated(x: Tensor, decay: Tensor, *, reverse: bool = False) -> Tensor:
    """Return y_t = x_t + d_t y_{t-1}, from y_{-1} = 0 on; or y_t = x_t + d_t y_{t+1}, backwards.

    By recursive doubling (Kogge and Stone 1973, IEEE Transactions on Computers C-22): after k
    rounds each y_t has 2^k terms, so that log2 T rounds do.

    Args:
        x: [T, B] float.
        decay: [T, B] float, d; nothing comes in front of the first step.
        reverse: backwards in time.

    Returns:
        [T, B] of the dtype of x.
    """
    terms = 1
    while terms < x.shape[0]:
        x = x + decay * _moved(x, terms, reverse)
        decay = decay * _moved(decay, terms, reverse)
        terms *= 2
    return x


def _moved(x: Tensor, steps: int, reverse: bool) -> Tensor:
    """Return x some steps later, or earlier, with zeros where nothing is."""
    zeros = ops.zeros_like(x[:steps])
    return ops.concatenate([x[steps:], zeros] if reverse else [zeros, x[:-steps]], axis=0)
