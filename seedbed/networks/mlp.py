"""A multilayer perceptron, for vectors."""

from collections.abc import Sequence

import keras
from keras import ops

from seedbed.networks.image import dense, flat
from seedbed.types import Tensor


class Mlp(keras.layers.Layer):
    """Dense layers over the flattened observation; integers are not scaled.

    Args:
        units: the width of each layer.
        activation: name of an activation of Keras.
    """

    def __init__(self, units: Sequence[int] = (64, 64), activation: str = "tanh") -> None:
        super().__init__(name="torso")
        if not units:
            raise ValueError("units is empty: name at least one layer")
        keras.activations.get(activation)
        self.hidden = [
            dense(width, f"dense{i + 1}", activation=activation) for i, width in enumerate(units)
        ]

    def call(self, observation: Tensor) -> Tensor:
        """Return features [N, units[-1]].

        Args:
            observation: [N, *shape].
        """
        x = flat(ops.cast(observation, "float32"))
        for layer in self.hidden:
            x = layer(x)
        return x
