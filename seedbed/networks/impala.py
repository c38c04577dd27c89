"""The two networks of IMPALA (Espeholt et al. 2018, arXiv:1802.01561), figure 3."""

from typing import Any

import keras
from keras import ops

from seedbed.networks.image import FirstConvolution, ImageTorso, convolution, dense, flat, scaled
from seedbed.networks.initializers import GlorotUniform
from seedbed.types import Tensor


class ImpalaShallow(ImageTorso):
    """Figure 3, left: 16 filters 8x8/4, 32 filters 4x4/2, dense 256.

    Args:
        standardize: see `FirstConvolution`.
    """

    smallest = 20

    def __init__(self, standardize: bool = False) -> None:
        super().__init__(name="torso")
        self.first = FirstConvolution(16, 8, 4, "conv1", standardize)
        self.conv2 = convolution(32, 4, 2, "conv2")
        self.dense = dense(256, "dense")

    def call(self, observation: Tensor) -> Tensor:
        """Return features [N, 256].

        Args:
            observation: [N, *stacked shape].
        """
        return self.dense(flat(self.conv2(self.first(observation))))


class ImpalaDeep(ImageTorso):
    """Figure 3, right: three sections of a convolution, a pooling and two residual blocks.

    Args:
        width: multiplies the filters: 1, 2 and 4 are Default, Medium and Large of Table 4 of the
            SEED paper.
    """

    smallest = 8
    # Of each section, before the width.
    filters: tuple[int, ...] = (16, 32, 32)

    def __init__(self, width: int = 1) -> None:
        super().__init__(name="torso")
        if width not in (1, 2, 4):
            raise ValueError(f"width is 1, 2 or 4, given {width}")
        self.sections = [
            Section(filters * width, f"section{i + 1}") for i, filters in enumerate(self.filters)
        ]
        self.first = self.sections[0]
        self.dense = dense(256, "dense")

    def call(self, observation: Tensor) -> Tensor:
        """Return features [N, 256].

        Args:
            observation: [N, height, width, channels].
        """
        x = scaled(observation)
        for section in self.sections:
            x = section(x)
        return self.dense(flat(ops.relu(x)))


class Section(keras.layers.Layer):
    """A 3x3 convolution, 3x3/2 max pooling and two residual blocks, all of the same filters."""

    def __init__(self, filters: int, name: str) -> None:
        super().__init__(name=name)
        self.conv = same_convolution(filters, "conv")
        self.pool = keras.layers.MaxPooling2D(3, 2, padding="same", name="pool")
        self.blocks = [
            (
                same_convolution(filters, f"block{i}_conv1"),
                same_convolution(filters, f"block{i}_conv2"),
            )
            for i in (1, 2)
        ]
        self.convolutions = [conv for block in self.blocks for conv in block]

    def call(self, x: Tensor) -> Tensor:
        """Return [N, ceil(h/2), ceil(w/2), filters].

        Args:
            x: [N, h, w, c].
        """
        x = self.pool(self.conv(x))
        for one, two in self.blocks:
            x = x + two(ops.relu(one(ops.relu(x))))
        return x


def same_convolution(filters: int, name: str) -> Any:
    """Return a 3x3 convolution that keeps the size, without activation."""
    return keras.layers.Conv2D(
        filters, 3, padding="same", kernel_initializer=GlorotUniform(), name=name
    )
