"""Gradients of an actor-critic's loss, and their slow reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend

Array = NDArray[Any]


def loss_gradients(
    backend: Backend, loss: Callable[[Any, Any], Any], logits: Array, value: Array
) -> tuple[Array, Array]:
    """The gradients of `loss(logits, value)` for the logits and the values."""
    given = (ops.convert_to_tensor(logits), ops.convert_to_tensor(value))
    if backend.name == "jax":
        import jax

        result = jax.grad(lambda outputs: loss(*outputs))(given)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(given)
            number = loss(*given)
        result = tape.gradient(number, given)
    return ops.convert_to_numpy(result[0]), ops.convert_to_numpy(result[1])


def central_differences(
    loss: Callable[[Array, Array], float], logits: Array, value: Array, step: float
) -> tuple[Array, Array]:
    """The slopes of `loss(logits, value)` in double precision, one number after the other."""
    results = []
    for moved in (logits.copy(), value.copy()):
        result = np.zeros_like(moved)
        outputs = (moved, value) if moved.shape == logits.shape else (logits, moved)
        for index in np.ndindex(moved.shape):
            kept, ends = moved[index], []
            for sign in (1, -1):
                moved[index] = kept + sign * step
                ends.append(loss(*outputs))
            moved[index] = kept
            result[index] = (ends[0] - ends[1]) / (2 * step)
        results.append(result)
    return results[0], results[1]
