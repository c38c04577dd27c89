"""Initial values drawn with NumPy, so that one seed gives the same weights under both backends."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from typing_extensions import override


class GlorotUniform(keras.initializers.Initializer):
    """Uniform values of Glorot & Bengio 2010.

    They are drawn from NumPy's global generator, which `build_agent` seeds.
    """

    @override
    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        receptive = int(np.prod(shape[:-2]))
        limit = np.sqrt(6.0 / (receptive * (shape[-2] + shape[-1])))
        values = np.random.uniform(-limit, limit, shape)
        return keras.ops.convert_to_tensor(values, dtype=dtype or "float32")


# Factor of the orthogonal kernels of layers by their names; of all others √2, for ReLU and tanh.
_GAINS = {"policy": 0.01, "value": 1.0, "advantage": 1.0, "lstm": 1.0}


def draw_orthogonal(model: keras.Model) -> None:
    """Draw all kernels of a model anew, orthogonal, those of convolutions as [inputs, outputs].

    Args:
        model: the model, built.
    """
    for variable in model.trainable_variables:
        *_, layer, name = variable.path.split("/")
        if name.endswith("kernel"):
            shape = tuple(variable.shape)
            gain = _GAINS.get(layer, math.sqrt(2.0))
            flat = Orthogonal(gain)((math.prod(shape[:-1]), shape[-1]))
            variable.assign(keras.ops.reshape(flat, shape))


class Orthogonal(keras.initializers.Initializer):
    """Orthogonal matrices [inputs, outputs] (Saxe et al. 2013, arXiv:1312.6120), times `gain`."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    @override
    def __call__(self, shape: Sequence[int], dtype: Any = None) -> Any:
        rows, columns = shape
        tall = np.random.normal(size=(max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(tall)
        q = q * np.sign(np.diag(r))
        values = self.gain * (q if rows >= columns else q.T)
        return keras.ops.convert_to_tensor(values, dtype=dtype or "float32")
