"""The network of Mnih et al. 2015, "Human-level control through deep reinforcement learning".

It is R2D2's and SEED's torso for Atari. `NatureShallow`, with fewer filters at its end, is the one
of Stooke and Abbeel 2018 (arXiv:1803.02811) and of OpenAI's Baselines for A2C.
"""

from seedbed.networks.image import FirstConvolution, ImageTorso, convolution, dense, flat
from seedbed.types import Tensor


class Nature(ImageTorso):
    """32 filters 8x8/4, 64 filters 4x4/2, 64 filters 3x3/1, dense 512.

    Args:
        standardize: see `FirstConvolution`.
    """

    smallest = 36
    last_filters = 64

    def __init__(self, standardize: bool = False) -> None:
        super().__init__(name="torso")
        self.first = FirstConvolution(32, 8, 4, "conv1", standardize)
        self.conv2 = convolution(64, 4, 2, "conv2")
        self.conv3 = convolution(self.last_filters, 3, 1, "conv3")
        self.dense = dense(512, "dense")

    def call(self, observation: Tensor) -> Tensor:
        """Return features [N, 512].

        Args:
            observation: [N, *stacked shape].
        """
        return self.dense(flat(self.conv3(self.conv2(self.first(observation)))))


class NatureShallow(Nature):
    """32 filters 8x8/4, 64 filters 4x4/2, 32 filters 3x3/1, dense 512.

    Args:
        standardize: see `FirstConvolution`.
    """

    last_filters = 32
