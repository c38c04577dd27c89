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
