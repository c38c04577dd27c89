"""The two networks of Espeholt et al. 2018, "IMPALA", figure 3."""

from __future__ import annotations

from typing import Any

from services.learner.networks.image import ImageTorso, convolution, dense, flat, scaled

Tensor = Any


class ImpalaShallow(ImageTorso):
    """Figure 3, left: 16 filters 8x8/4, 32 filters 4x4/2, dense 256."""

    smallest = 20

    def __init__(self) -> None:
        super().__init__(name="torso")
        self.conv1 = convolution(16, 8, 4, "conv1")
        self.conv2 = convolution(32, 4, 2, "conv2")
        self.dense = dense(256, "dense")

    def call(self, observation: Tensor) -> Tensor:
        """[N, height, width, channels] to [N, 256]."""
        x = self.conv2(self.conv1(scaled(observation)))
        return self.dense(flat(x))
