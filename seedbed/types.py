"""Type aliases that the whole library shares."""

from typing import Any, TypeAlias

# An array of the backend that runs: TensorFlow's, JAX's, or NumPy's. Neither library has types.
Tensor: TypeAlias = Any
# The trainable variables of a model, in the order of `model.trainable_variables`.
Params: TypeAlias = list[Tensor]
