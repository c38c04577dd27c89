"""Convolution of bfloat16 arrays in JAX, with sums in float32."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from seedbed.types import Tensor


def _convolution(image: Tensor, kernel: Tensor, stride: int, dtype: Any) -> Tensor:
    return jax.lax.conv_general_dilated(
        image,
        kernel,
        (stride, stride),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=dtype,
    )


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(image: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """Return a valid convolution; arguments and result as `Backend.convolve`."""
    return _convolution(image, kernel, stride, jnp.float32)


def _forward(image: Tensor, kernel: Tensor, stride: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    return convolve(image, kernel, stride), (image, kernel)


def _backward(stride: int, saved: tuple[Tensor, Tensor], gradient: Tensor) -> Any:
    # JAX's own gradient of sums in float32 has products in float32.
    _, backward = jax.vjp(partial(_convolution, stride=stride, dtype=jnp.bfloat16), *saved)
    return backward(gradient.astype(jnp.bfloat16))


convolve.defvjp(_forward, _backward)
