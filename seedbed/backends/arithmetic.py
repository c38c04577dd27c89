"""Arithmetic on all gradients or parameters of a model: clipping and mixing."""

import math
from math import prod

from keras import ops

from seedbed.types import Params, Tensor


def clip_by_global_norm(gradients: list[Tensor], max_norm: float) -> tuple[list[Tensor], Tensor]:
    """Scale all gradients so that their joint norm is at most `max_norm` (Pascanu et al. 2013).

    Where the norm is not finite, overflow included, the gradients become NaN: no update may use
    them, and the caller sees it in the norm.

    Args:
        gradients: one array for each parameter.
        max_norm: 0 does not clip.

    Returns:
        The gradients, and their norm before clipping.
    """
    norm = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
    if not max_norm:
        return gradients, norm
    # An infinite norm would scale finite gradients to 0, and look like an update.
    scale = ops.where(ops.isfinite(norm), max_norm / ops.maximum(norm, max_norm), math.nan)
    return [g * scale for g in gradients], norm


def updated_statistics(statistics: Tensor, gradient: Tensor) -> Tensor:
    """Return the mean, variance and number of batches after one more batch, all counted the same.

    With d for the batch's mean less the mean before, and the rate r = 1 / (number + 1), the mean
    grows by r d. The variance goes by r to the batch's mean square distance from the mean before,
    less r² d², which is exactly the variance of all that was counted.

    Args:
        statistics: [3, *shape] float32, as of `seedbed.networks.statistics`.
        gradient: [3, *shape] float32: -d, the variance less that mean square distance, and -1; or
            all 0 for a batch that does not count.
    """
    rate = 1.0 / (statistics[2] + 1.0)
    mean = statistics[0] - rate * gradient[0]
    variance = statistics[1] - rate * gradient[1] - ops.square(rate * gradient[0])
    return ops.stack([mean, ops.maximum(variance, 0.0), statistics[2] - gradient[2]])


def mixed(
    params: Params, own: Tensor, weights: list[Tensor] | None, others: list[Tensor]
) -> Params:
    """Return a weighted sum of parameters and of others.

    Args:
        params: the parameters.
        own: their weight, float32.
        weights: weight of each other, float32; None is `own` for each, which takes a buffer and two
            passes over it less.
        others: flat buffers [d], in the order of the parameters.
    """
    result, start = [], 0
    for array in params:
        stop = start + prod(array.shape)
        received = [ops.reshape(other[start:stop], array.shape) for other in others]
        if weights is None:
            result.append(sum(received, array) * own)
        else:
            weighted = [w * other for w, other in zip(weights, received, strict=True)]
            result.append(sum(weighted, array * own))
        start = stop
    return result
