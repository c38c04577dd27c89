"""Pictures among observations: their range and the order of their axes, by their space.

Image networks divide bytes (uint8) by 255, and take every other dtype as it is. A picture of
another range than 0 to 255 is scaled where it is read, so that they see 0 to 1, or -1 to 1 where
the space has a sign. Bits are sent as they are: int8 as a whole observation, bits in a dictionary.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiBinary
from numpy.typing import NDArray

from seedbed.runtime.text import counted

_SMALLEST_SIDE = 8  # of a picture of floats, which may as well be a matrix
_SLACK = 0.01  # of the range, by which floats may lie beyond it
_CHANNELS = 4  # of a picture in the usual sense
_LARGEST = 65535.0  # beyond it, a bound of floats is none


@dataclass(frozen=True)
class Picture:
    """A picture as it is sent.

    Attributes:
        shape: [height, width] or [height, width, channels].
        low: least number of its space.
        high: largest number of its space.
        dtype: of the numbers that are sent; None: as every other array.
        factor: by which numbers are multiplied before.
    """

    shape: tuple[int, ...]
    low: float
    high: float
    dtype: str | None = None
    factor: float = 1.0

    def scale(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of an array of any shape as they are sent."""
        if self.factor == 1.0:
            return array
        return (array.astype(np.float32) * np.float32(self.factor)).astype(np.float32)

    def beyond(self, array: NDArray[Any]) -> float | None:
        """Return a number that lies well beyond the bounds; None if there is none.

        Floats of two axes may be a matrix, whose bounds are often none.

        Args:
            array: a picture [height, width, ...] in the dtype of its space.
        """
        whole = array.dtype.kind in "biu"
        fits = array.dtype == np.uint8 and (self.low, self.high) == (0, 255)
        if fits or not (whole or len(self.shape) == 3):
            return None
        slack = 0.0 if whole else _SLACK * (self.high - self.low)
        lowest, highest = float(array.min()), float(array.max())
        if highest > self.high + slack:
            return highest
        return lowest if lowest < self.low - slack else None

    def sees(self, sent: NDArray[Any]) -> tuple[float, float]:
        """Return the lowest and the highest number that an image network sees.

        Args:
            sent: pictures [..., height, width, channels] as they are sent.
        """
        factor = 1 / 255 if sent.dtype == np.uint8 else 1.0
        return float(sent.min()) * factor, float(sent.max()) * factor

    @property
    def seen(self) -> str:
        """What an image network sees, in words."""
        height, width, channels = (*self.shape, 1)[:3]
        size = f"{height} high, {width} wide, {counted(channels, 'channel')}"
        factor = self.factor if self.dtype else 1 / 255 if self.high == 255 else 1.0
        low, high = self.low * factor, self.high * factor
        return f"{size}; {self.low:g} to {self.high:g} of its space as {low:.3g} to {high:.3g}"


def picture_of(space: Box | MultiBinary, in_dictionary: bool) -> Picture | None:
    """Return how a picture is sent; None of what is none.

    Args:
        space: of whatever shape and dtype.
        in_dictionary: other entries are sent with it.
    """
    shape = tuple(map(int, space.shape))
    if isinstance(space, MultiBinary):
        return Picture(shape, 0.0, 1.0, "bool") if len(shape) in (2, 3) else None
    if not _is_picture(space):
        return None
    low, high = float(np.min(space.low)), float(np.max(space.high))
    if space.dtype is not None and space.dtype.kind in "biu" and low >= 0 and high == 1:
        return Picture(shape, low, high, "bool" if in_dictionary else "int8")
    largest = max(abs(low), abs(high))
    if not 1 < largest <= _LARGEST or (space.dtype == np.uint8 and largest == 255):
        return Picture(shape, low, high)
    return Picture(shape, low, high, "float32", 1 / largest)


def _is_picture(space: Box) -> bool:
    shape = space.shape
    if len(shape) not in (2, 3):
        return False
    return space.dtype in (np.uint8, np.bool_) or min(shape[:2]) >= _SMALLEST_SIDE


def channels_first(shape: tuple[int, ...]) -> bool:
    """Return whether three axes look like [channels, height, width].

    Args:
        shape: without a leading axis.
    """
    return len(shape) == 3 and shape[0] <= _CHANNELS < min(shape[1:])


CHANNELS_LAST = (
    "an image has its channels last: move the axis, such as by "
    "gymnasium.wrappers.TransformObservation with numpy.moveaxis(observation, 0, -1)"
)
