"""Initial values drawn with NumPy, so that one seed gives the same weights under both backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np


class GlorotUniform(keras.initializers.Initializer):
    """Glorot & Bengio 2010, from NumPy's global generator (`keras.utils.set_random_seed`)."""

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        receptive = int(np.prod(shape[:-2]))
        limit = np.sqrt(6.0 / (receptive * (shape[-2] + shape[-1])))
        values = np.random.uniform(-limit, limit, shape)
        return keras.ops.convert_to_tensor(values, dtype=dtype or "float32")


class Orthogonal(keras.initializers.Initializer):
    """Saxe et al. 2013. A kernel [..., inputs, outputs] counts as a matrix with the outputs as its
    columns. A `gain` of sqrt(2) keeps the size of a signal through ReLUs.
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        rows, columns = int(np.prod(shape[:-1])), shape[-1]
        tall = np.random.normal(size=(max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(tall)
        q = q * np.sign(np.diag(r))
        values = self.gain * np.reshape(q if rows >= columns else q.T, shape)
        return keras.ops.convert_to_tensor(values, dtype=dtype or "float32")


def hidden_layers(initial: str) -> keras.initializers.Initializer:
    """The initializer of layers with ReLU: `glorot` (SEED, A.3.1) or `orthogonal`.

    Images of games are mostly background, and Glorot's values shrink what differs between two of
    them further with each layer; orthogonal ones with a gain of sqrt(2) do not.
    """
    if initial == "glorot":
        return GlorotUniform()
    if initial == "orthogonal":
        return Orthogonal(float(np.sqrt(2.0)))
    raise ValueError(f"initial {initial!r} must be glorot or orthogonal")
