"""Dueling heads (Wang et al. 2016, arXiv:1511.06581): Q from a value and advantages."""

import keras
from keras import ops

from seedbed.networks.image import dense
from seedbed.types import Tensor


class Dueling(keras.layers.Layer):
    """Two hidden layers side by side, and equation (9): Q = V + A - mean(A).

    Args:
        actions: A.
        units: units of each hidden layer.
        policy: dtype policy of the hidden layers, `Body.policy`; the values are float32.
    """

    def __init__(self, actions: int, units: int, policy: str = "float32") -> None:
        super().__init__(name="dueling", dtype="float32")
        self.value_hidden = dense(units, "value_hidden", policy=policy)
        self.value = dense(1, "value", activation=None, policy="float32")
        self.advantage_hidden = dense(units, "advantage_hidden", policy=policy)
        self.advantage = dense(actions, "advantage", activation=None, policy="float32")

    def call(self, features: Tensor) -> Tensor:
        """Return action values [..., A].

        Args:
            features: [..., F] float32.
        """
        value = self.value(self.value_hidden(features))
        advantage = self.advantage(self.advantage_hidden(features))
        return value + advantage - ops.mean(advantage, axis=-1, keepdims=True)
