"""Statistics over the real transitions of an unroll."""

from keras import ops

from seedbed.types import Tensor


def masked_mean(value: Tensor, mask: Tensor) -> Tensor:
    """Return the mean where the mask is 1; 0 if it is nowhere.

    Args:
        value: any shape.
        mask: 0 or 1, of the same shape.
    """
    value, mask = ops.cast(value, "float32"), ops.cast(mask, "float32")
    return ops.sum(value * mask) / ops.maximum(ops.sum(mask), 1.0)


def standardized(value: Tensor, mask: Tensor) -> Tensor:
    """Return values with a mean of 0 and a standard deviation of 1 where the mask is 1; else 0.

    Args:
        value: [T, B] float32.
        mask: [T, B], 1 for real transitions and 0 for masked ones.
    """
    centred = (value - masked_mean(value, mask)) * mask
    deviation = ops.sqrt(masked_mean(ops.square(centred), mask))
    return centred / (deviation + 1e-8)


def explained_variance(target: Tensor, prediction: Tensor, mask: Tensor) -> Tensor:
    """Return 1 - var(target - prediction) / var(target): 1 is perfect, 0 a constant.

    Args:
        target: [T, B] float32.
        prediction: [T, B] float32.
        mask: [T, B], 1 for real transitions and 0 for masked ones.
    """

    def variance(value: Tensor) -> Tensor:
        return masked_mean(ops.square(value - masked_mean(value, mask)), mask)

    return 1.0 - variance(target - prediction) / ops.maximum(variance(target), 1e-8)
