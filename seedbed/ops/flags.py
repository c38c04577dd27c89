"""Flags of time steps, as the wire has them."""

import numpy as np
from keras import ops

from seedbed.types import Tensor


def is_set(flags: Tensor, flag: int) -> Tensor:
    """Return whether a flag is set [...] bool.

    Args:
        flags: [...] uint8, bits of `seedbed.spec`.
        flag: one of these bits.
    """
    return ops.not_equal(ops.bitwise_and(flags, np.uint8(flag)), 0)
