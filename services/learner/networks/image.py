"""What the image torsos share: checks, scaling, and the convolution's layout."""

from __future__ import annotations

from math import prod
from typing import Any

import keras
from keras import ops

from services.common.exit_codes import ExitCode, SeedbedError
from services.common.spec import ArraySpec
from services.learner.networks.initializers import GlorotUniform

Tensor = Any


class ImageTorso(keras.layers.Layer):
    """A torso of images [N, height, width, channels]; integers are scaled by 1/255."""

    smallest = 1  # pixels of the smallest side that still leaves something after the convolutions

    def observe(self, frame: ArraySpec, frame_stack: int) -> None:
        """Called once, before building, with a single frame and K.

        Raises:
            SeedbedError: the frames are no images, or too small.
        """
        if len(frame.shape) not in (2, 3):
            raise SeedbedError(
                ExitCode.CONFIG,
                f"learner.network {self.name_of()} wants images [height, width(, channels)], but "
                f"the environment gives {frame}: use `mlp` or a network of your own",
            )
        if min(frame.shape[:2]) < self.smallest:
            raise SeedbedError(
                ExitCode.CONFIG,
                f"learner.network {self.name_of()} wants images of at least {self.smallest} x "
                f"{self.smallest}, but the environment gives {frame}: use a smaller network",
            )

    def prepare(self, frame: Tensor) -> Tensor:
        """Frames [N, height, width(, channels)] as the first layer wants them."""
        return frame

    def name_of(self) -> str:
        """The class, for errors."""
        return type(self).__name__


def scaled(image: Tensor) -> Tensor:
    """float32 images; integers become [0, 1]."""
    integer = not keras.backend.is_float_dtype(keras.backend.standardize_dtype(image.dtype))
    image = ops.cast(image, "float32")
    return image * (1.0 / 255.0) if integer else image


def convolution(filters: int, size: int, stride: int, name: str) -> Any:
    """A valid convolution with ReLU."""
    return keras.layers.Conv2D(
        filters,
        size,
        stride,
        activation="relu",
        kernel_initializer=GlorotUniform(),
        name=name,
    )


def dense(units: int, name: str, activation: str | None = "relu") -> Any:
    """A dense layer with our initial values."""
    return keras.layers.Dense(
        units, activation=activation, kernel_initializer=GlorotUniform(), name=name
    )


def flat(x: Tensor) -> Tensor:
    """[N, ...] to [N, F] with a static F."""
    return ops.reshape(x, (-1, prod(x.shape[1:])))
