"""Pictures among observations: their range and the order of their axes, by their space.

Image networks divide bytes by 255, and take floats as they are. A picture of another range is
scaled where it is read, so that every network sees 0 to 1 (-1 to 1 where the space has a sign).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

_CHANNELS = 4
_SMALLEST_SIDE = 8  # of a picture of floats, which may as well be a matrix
_LARGEST = 65535.0  # beyond it, a bound of floats is none


@dataclass(frozen=True)
class PictureScale:
    """How a picture is sent.

    Attributes:
        dtype: `uint8`, of which image networks divide by 255, or `float32`.
        factor: by which numbers are multiplied before they are sent.
        highest: largest magnitude of a number in its space.
    """

    dtype: str
    factor: float
    highest: float

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the picture as it is sent; no number is above `highest`."""
        if self.dtype == "uint8":
            return array.astype(np.uint8) * np.uint8(self.factor)
        return (array * np.float32(self.factor)).astype(np.float32)

    @property
    def seen(self) -> str:
        """What the network sees, in words."""
        return f"0 to {self.highest:g} of the space as 0 to 1"


def picture_scale(space: Box) -> PictureScale | None:
    """Return how a picture of another range than 0 to 255 or 0 to 1 is sent; None: as it is.

    Args:
        space: of whatever shape and dtype.
    """
    if not is_picture(space):
        return None
    low, high = float(np.min(space.low)), float(np.max(space.high))
    highest = max(abs(low), abs(high))
    if space.dtype in (np.uint8, np.bool_):
        if highest in (0.0, 255.0):
            return None
        if 255 % highest == 0:  # bytes lose nothing
            return PictureScale("uint8", 255 // highest, highest)
        return PictureScale("float32", 1 / highest, highest)
    if not np.isfinite(highest) or not 1 < highest <= _LARGEST:
        return None
    return PictureScale("float32", 1 / highest, highest)


def is_picture(space: Box) -> bool:
    """Return whether an array is a picture: [height, width] or [height, width, channels]."""
    shape = tuple(space.shape)
    if len(shape) not in (2, 3):
        return False
    if space.dtype in (np.uint8, np.bool_):
        return True
    channels = shape[2] if len(shape) == 3 else 1
    return min(shape[:2]) >= _SMALLEST_SIDE and channels <= _CHANNELS


def channels_first(shape: tuple[int, ...]) -> bool:
    """Return whether three axes look like [channels, height, width].

    Args:
        shape: without a leading axis.
    """
    return len(shape) == 3 and shape[0] <= _CHANNELS < min(shape[1:]) and shape[2] > _CHANNELS


CHANNELS_LAST = (
    "an image has its channels last: move the axis, such as by "
    "gymnasium.wrappers.TransformObservation with numpy.moveaxis(observation, 0, -1)"
)
