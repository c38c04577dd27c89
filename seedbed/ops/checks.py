"""Checks of arguments, made while a function is traced."""

import keras

from seedbed.types import Tensor


def check_floats(**arrays: Tensor) -> None:
    """Check that arrays [T, B] have one shape and dtypes of floating point.

    Raises:
        ValueError: two shapes differ, or an array has another rank than 2.
        TypeError: a dtype is no floating point.
    """
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 for shape in shapes.values()):
        raise ValueError(f"expected arrays of one shape [T, B], given {shapes}")
    dtypes = {name: keras.backend.standardize_dtype(array.dtype) for name, array in arrays.items()}
    if not all(keras.backend.is_float_dtype(dtype) for dtype in dtypes.values()):
        raise TypeError(f"expected arrays of floating point, given {dtypes}")
