"""Running mean and variance of what a network sees or what a loss is made of.

They are one weight among the model's, so that they are published, checkpointed, mixed and averaged
as all others are, and an update changes them beside the optimizer: by their gradient, as
`updated_statistics` of `seedbed.backends.arithmetic` says.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops
from typing_extensions import override

from seedbed import backends
from seedbed.ops.frame_stack import stacked_shape
from seedbed.spec import ArraySpec
from seedbed.types import Params, Tensor

# Added to variances. A picture's pixels, in [0, 1], hardly vary where the background is, and other
# preprocessing shifts edges by a tenth: below that nothing is magnified.
_EPSILON, _PICTURE_EPSILON = 1e-5, 0.1**2
# Largest normalized number, either way.
_MOST = 5.0


class RunningStatistics(keras.layers.Layer):
    """Mean, variance and number of batches, [3, *shape], of which each batch counts the same.

    Args:
        shape: of what is counted.
        name: the layer's.
        prior: batches that the first values, mean 0 and variance 1, count for.

    Attributes:
        updates: batches that are counted; later ones change nothing.
    """

    def __init__(self, shape: tuple[int, ...], name: str, prior: int = 0) -> None:
        super().__init__(name=name, dtype="float32")
        first = ops.stack([ops.zeros(shape), ops.ones(shape), ops.full(shape, float(prior))])
        self.statistics: Any = self.add_weight(
            name="statistics", shape=(3, *shape), initializer=lambda *_, **__: first
        )
        self.statistics.is_statistics = True
        self.updates = 2**31 - 1
        self.built = True

    def of(self, model: keras.Model, params: Params) -> Tensor:
        """Return the statistics [3, *shape] among the parameters of a model.

        Args:
            model: the model, built.
            params: the parameters.
        """
        paths = [variable.path for variable in model.trainable_variables]
        return params[paths.index(self.statistics.path)]

    def loss(self, statistics: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Return 0, whose gradient by the statistics is that of `updated_statistics`.

        Means of such gradients over learners with as many x are the gradient of all their x.

        Args:
            statistics: [3, *shape] float32.
            x: [N, *shape], as `numbers` takes it.
            weight: [N] float32, 1 for what counts and 0 for what does not.
        """
        statistics_now = ops.stop_gradient(statistics)
        mean, variance, count = statistics_now[0], statistics_now[1], statistics_now[2]
        total = ops.sum(weight)

        def gradient() -> Tensor:
            share = ops.reshape(weight / total, (-1, *[1] * len(mean.shape)))
            away = self.numbers(x) - mean
            distance = ops.sum(away * share, axis=0)
            square = ops.sum(ops.square(away) * share, axis=0)
            return ops.stack([-distance, variance - square, -ops.ones_like(mean)])

        counts = (ops.max(count) < self.updates) & (total > 0)
        nothing = ops.zeros_like(statistics_now)
        found = ops.stop_gradient(ops.cond(counts, gradient, lambda: nothing))
        value = ops.sum(statistics * found)
        return value - ops.stop_gradient(value)

    def numbers(self, x: Tensor) -> Tensor:
        """Return what is counted [...] as float32."""
        return x


class ObservationNormalizer(RunningStatistics):
    """Observations with a mean of 0 and a deviation of 1 of each number, clipped to ±5.

    The statistics are of single frames as the environment gives them. Those of a stack share them.

    Args:
        frame: a single frame.
        frame_stack: K.
        is_picture: whether its numbers are pixels.
    """

    def __init__(self, frame: ArraySpec, frame_stack: int, is_picture: bool = False) -> None:
        super().__init__(frame.shape, "normalizer")
        self.frame_stack = frame_stack
        self.scale = 1.0 / 255.0 if is_picture and frame.dtype == "uint8" else 1.0
        self.epsilon = _PICTURE_EPSILON if is_picture else _EPSILON
        # Of pictures it takes a sixth of an update; other arrays are small.
        self._fused = backends.current().fused(self._normalized) if is_picture else self._normalized

    @override
    def numbers(self, x: Tensor) -> Tensor:
        """Return frames [...] as float32, pixels of bytes (uint8) scaled to [0, 1]."""
        return ops.cast(x, "float32") * self.scale

    def call(
        self, observation: Tensor, prepare: Callable[[Tensor], Tensor] = lambda frames: frames
    ) -> Tensor:
        """Return [N, *stacked shape] float32.

        Args:
            observation: [N, *stacked shape], prepared.
            prepare: changes the layout of frames, `Body.prepare`.
        """
        statistics = prepare(ops.stop_gradient(ops.convert_to_tensor(self.statistics)))
        mean, variance = self._of_stack(statistics[0]), self._of_stack(statistics[1])
        # A model that is exported is made of symbols and plain operations.
        symbolic = isinstance(observation, keras.KerasTensor)
        normalized = self._normalized if symbolic else self._fused
        return normalized(observation, mean, variance)

    def _normalized(self, observation: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        x = (self.numbers(observation) - mean) * ops.rsqrt(variance + self.epsilon)
        return ops.clip(x, -_MOST, _MOST)

    def _of_stack(self, x: Tensor) -> Tensor:
        """Return what is of one frame for a stack of them."""
        shape = stacked_shape(tuple(x.shape), 1)
        x = ops.reshape(x, shape)
        return ops.concatenate([x] * self.frame_stack, axis=-1)
