"""Base of the image torsos: checks, scaling, and a first convolution in a faster layout."""

from math import prod
from typing import Any

import keras
from keras import ops

from seedbed import backends
from seedbed.networks.initializers import GlorotUniform
from seedbed.runtime.exit_codes import ConfigError
from seedbed.spec import ArraySpec
from seedbed.types import Tensor

_CHANNELS = 4  # most of a picture whose first axis they may be


class FirstConvolution(keras.layers.Layer):
    """A valid convolution with ReLU of raw images, as pixels or as blocks of pixels.

    A convolution of size n * s and stride s is one of size n and stride 1 on blocks of s x s
    pixels (space to depth). On a CPU this is faster, and so is stacking frames: it joins runs of
    s * s bytes instead of single ones (5 ms instead of 65 ms for 672 stacks of four 84 x 84
    frames). The weights are those of the plain convolution, [n * s, n * s, channels, filters],
    so they load into a `keras.layers.Conv2D`.

    Bytes (uint8) are scaled by 1/255. The scale goes into the kernel, which is smaller.

    Args:
        standardize: give each stack of images a mean of 0 and a standard deviation of 1 (at least
            1/255). A game's screen is mostly background: left in, it is the larger part of every
            layer's output, and what the optimizer mostly works on.
    """

    def __init__(
        self, filters: int, size: int, stride: int, name: str, standardize: bool = False
    ) -> None:
        # Weights are read as float32 in any precision, and `call` does the rounding.
        super().__init__(name=name, dtype="float32")
        self.products = keras.config.dtype_policy().compute_dtype
        self.filters, self.size, self.stride = filters, size, stride
        self.standardize = standardize
        # Channels of a frame, where the layout is blocks; 0 is plain pixels.
        self.frame_channels = 0

    def observe(self, frame: ArraySpec) -> None:
        """Choose the layout: blocks if the stride divides kernel and image."""
        height, width, channels = (*frame.shape, 1)[:3]
        divides = [n % self.stride == 0 for n in (self.size, height, width)]
        self.frame_channels = channels if self.stride > 1 and all(divides) else 0

    def prepare(self, frame: Tensor) -> Tensor:
        """Change frames to [N, H/s, W/s, s*s*C], as (row, column, channel).

        Args:
            frame: [N, H, W(, C)].
        """
        if not self.frame_channels:
            return frame
        s, channels = self.stride, self.frame_channels
        height, width = frame.shape[1] // s, frame.shape[2] // s
        blocks = ops.reshape(frame, (-1, height, s, width, s * channels))
        blocks = backends.current().transpose(blocks, (0, 1, 3, 2, 4))
        return ops.reshape(blocks, (-1, height, width, s * s * channels))

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Make the weights, in the plain convolution's shape."""
        channels = input_shape[-1] or 0
        if self.frame_channels:
            channels //= self.stride**2
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.size, self.size, channels, self.filters),
            initializer=GlorotUniform(),
        )
        self.bias = self.add_weight(name="bias", shape=(self.filters,), initializer="zeros")

    def call(self, image: Tensor) -> Tensor:
        """Return [N, h, w, filters]: float32, or without standardization of the products' format.

        Args:
            image: prepared and stacked frames [N, ...].
        """
        are_bytes = keras.backend.standardize_dtype(image.dtype) == "uint8"
        kernel = ops.convert_to_tensor(self.kernel)
        if are_bytes:
            kernel = kernel * (1.0 / 255.0)
        stride = self.stride
        if self.frame_channels:
            kernel, stride = self._blocks(kernel), 1
        if self.products == "float32" or not self.standardize:
            # Bytes lose nothing.
            image, kernel = (ops.cast(a, self.products) for a in (image, kernel))
            x = ops.conv(image, kernel, stride, padding="valid")
        else:
            # Standardization cancels digits, so that it needs the sums in float32, and those of the
            # kernel that was used, which is the rounded one.
            image, kernel = (ops.cast(a, self.products) for a in (image, kernel))
            x = backends.current().convolve(image, kernel, stride)
            image, kernel = (ops.cast(a, "float32") for a in (image, kernel))
        bias: Tensor = self.bias
        if self.standardize:
            # Standardize the output in place of the input, because it is smaller, and a convolution
            # is linear.
            pixels = (1, 2, 3)
            mean = ops.mean(image, pixels, keepdims=True)
            # All sums of squares of one byte a pixel are far below what float32 tells apart.
            variance = ops.mean(ops.square(image), pixels, keepdims=True) - ops.square(mean)
            scale = 1.0 / 255.0 if are_bytes else 1.0
            deviation = ops.maximum(scale * ops.sqrt(ops.maximum(variance, 0.0)), 1.0 / 255.0)
            # As (x - mean * sum) / deviation + bias, in fewer passes over the output.
            x, mean = x / deviation, mean / deviation
            bias = bias - mean * ops.sum(kernel, axis=(0, 1, 2))
        return ops.relu(x + ops.cast(bias, x.dtype))

    def _blocks(self, kernel: Tensor) -> Tensor:
        """Return the kernel for blocks: channels in the order (frame, row, column, channel)."""
        n, s, c = self.size // self.stride, self.stride, self.frame_channels
        frames = kernel.shape[2] // c
        kernel = ops.reshape(kernel, (n, s, n, s, frames, c, self.filters))
        kernel = ops.transpose(kernel, (0, 2, 4, 1, 3, 5, 6))
        return ops.reshape(kernel, (n, n, frames * s * s * c, self.filters))


class ImageTorso(keras.layers.Layer):
    """A torso of images [N, height, width, channels]; subclasses have `first` and `smallest`."""

    first: Any  # the first layer
    # Pixels of the smallest side of which the convolutions leave anything.
    smallest = 1

    def observe(self, frame: ArraySpec, frame_stack: int) -> None:
        """Check a single frame, and choose the layout. Called once, before any other method.

        Args:
            frame: a single frame.
            frame_stack: K.

        Raises:
            SeedbedError: CONFIG: the frames are no images, or too small.
        """
        name = type(self).__name__
        if len(frame.shape) not in (2, 3):
            raise ConfigError(
                f"learner.network {name} wants images [height, width(, channels)], but the "
                f"environment gives {frame}: use `mlp` or a network of your own"
            )
        if len(frame.shape) == 3 and is_channels_first(frame.shape):
            raise ConfigError(
                f"learner.network {name} wants images [height, width, channels], but the "
                f"environment gives {frame}: channels first? Move the axis, such as by "
                "gymnasium.wrappers.TransformObservation with numpy.moveaxis(observation, 0, -1)"
            )
        if min(frame.shape[:2]) < self.smallest:
            raise ConfigError(
                f"learner.network {name} wants images of at least {self.smallest} x "
                f"{self.smallest}, but the environment gives {frame}: use `impala_deep`, "
                "`mlp` or a network of your own"
            )
        if isinstance(self.first, FirstConvolution):
            self.first.observe(frame)

    def prepare(self, frame: Tensor) -> Tensor:
        """Change frames to the first layer's layout.

        Args:
            frame: [N, height, width(, channels)].
        """
        return self.first.prepare(frame) if isinstance(self.first, FirstConvolution) else frame


def is_channels_first(shape: tuple[int, ...]) -> bool:
    """Return whether the first of three axes is that of the channels."""
    return shape[0] <= _CHANNELS < min(shape[1:])


def scaled(image: Tensor) -> Tensor:
    """Return images as float32; bytes (uint8) are scaled to [0, 1]."""
    are_bytes = keras.backend.standardize_dtype(image.dtype) == "uint8"
    image = ops.cast(image, "float32")
    return image * (1.0 / 255.0) if are_bytes else image


def convolution(filters: int, size: int, stride: int, name: str) -> Any:
    """Return a valid convolution with ReLU and this library's initial values.

    Args:
        filters: of the output.
        size: height and width of the kernel.
        stride: along both axes.
        name: the layer's.
    """
    return keras.layers.Conv2D(
        filters, size, stride, activation="relu", kernel_initializer=GlorotUniform(), name=name
    )


def dense(units: int, name: str, activation: str | None = "relu", policy: str | None = None) -> Any:
    """Return a dense layer with this library's initial values.

    Args:
        units: of the output.
        name: the layer's.
        activation: name of an activation of Keras; None is linear.
        policy: name of a dtype policy of Keras; None is the one in force.
    """
    return keras.layers.Dense(
        units, activation=activation, kernel_initializer=GlorotUniform(), name=name, dtype=policy
    )


def flat(x: Tensor) -> Tensor:
    """Reshape to [N, F] with a static F.

    Args:
        x: [N, ...].
    """
    return ops.reshape(x, (-1, prod(x.shape[1:])))
