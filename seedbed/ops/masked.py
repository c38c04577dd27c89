"""Statistics over the real transitions of an unroll."""

from __future__ import annotations

from keras import ops

from seedbed.types import Tensor


def masked_mean(value: Tensor, mask: Tensor) -> Tensor:
    """The mean of `value` where `mask` is 1; 0 where nothing is. Both of one shape."""
    return ops.sum(value * mask) / ops.maximum(ops.sum(mask), 1.0)


def explained_variance(target: Tensor, prediction: Tensor, mask: Tensor) -> Tensor:
    """1 - var(target - prediction) / var(target): 1 is a perfect critic, 0 a constant one."""

    def variance(value: Tensor) -> Tensor:
        return masked_mean(ops.square(value - masked_mean(value, mask)), mask)

    return 1.0 - variance(target - prediction) / ops.maximum(variance(target), 1e-8)
