"""Dueling heads (Wang et al. 2016): action values from a state's value and its advantages."""

from __future__ import annotations

import keras
from keras import ops

from seedbed.networks.image import dense
from seedbed.types import Tensor


class Dueling(keras.layers.Layer):
    """Two hidden layers side by side, and their equation (9): Q = V + A - mean(A).

    Args:
        actions: A.
        units: of each hidden layer.
    """

    def __init__(self, actions: int, units: int) -> None:
        super().__init__(name="dueling", dtype="float32")
        self.value_hidden = dense(units, "value_hidden")
        self.value = dense(1, "value", activation=None)
        self.advantage_hidden = dense(units, "advantage_hidden")
        self.advantage = dense(actions, "advantage", activation=None)

    def call(self, features: Tensor) -> Tensor:
        """[..., F] to action values [..., A]."""
        value = self.value(self.value_hidden(features))
        advantage = self.advantage(self.advantage_hidden(features))
        return value + advantage - ops.mean(advantage, axis=-1, keepdims=True)
