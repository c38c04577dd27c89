"""Clipping of gradients by their global norm."""

from __future__ import annotations

from keras import ops

from seedbed.types import Tensor


def clip_by_global_norm(gradients: list[Tensor], max_norm: float) -> tuple[list[Tensor], Tensor]:
    """Scale all gradients so that their joint norm is at most `max_norm` (Pascanu et al. 2013).

    A norm that is not finite makes the gradients so too; the caller sees it in the norm.

    Args:
        gradients: one array for each parameter.
        max_norm: 0 does not clip.

    Returns:
        The gradients, and their norm before clipping.
    """
    norm = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
    if not max_norm:
        return gradients, norm
    scale = max_norm / ops.maximum(norm, max_norm)
    return [g * scale for g in gradients], norm
