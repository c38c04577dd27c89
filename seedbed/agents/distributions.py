"""Distributions over actions, given the numbers that a policy's head returns."""

from math import log, pi, prod, sqrt
from typing import Protocol

import numpy as np
from keras import ops
from typing_extensions import override

from seedbed.spec import ActionSpec, ArraySpec
from seedbed.types import Tensor

# Of the logarithm of a standard deviation: 0.0067 and 1.65 in an action space of [-1, 1]. Above,
# the mean has no effect, and beyond a bound nothing leads back.
_LOG_STD = -5.0, 0.5
# Uniform numbers nearer to 0 and 1 than float32 resolves would become infinite.
_SMALLEST = 1e-6


class Distribution(Protocol):
    """A distribution over the actions of one environment. Pure functions of arrays.

    Attributes:
        parameters: P, numbers that the head returns, called logits.
        noise_columns: uniform numbers that a sample needs.
        behaviour: arrays of a sample that its probability needs, beside logits and action.
    """

    parameters: int
    noise_columns: int
    behaviour: dict[str, ArraySpec]

    def sample(self, logits: Tensor, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return actions [N, *action], and the arrays of `behaviour` [N, ...].

        Args:
            logits: [N, P] float32.
            noise: [N, noise_columns] float32, uniform in [0, 1).
        """

    def mode(self, logits: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the most probable actions, as `sample` does.

        Args:
            logits: [N, P] float32.
        """

    def log_prob(self, logits: Tensor, action: Tensor, behaviour: dict[str, Tensor]) -> Tensor:
        """Return the log probabilities [T, B] of actions.

        Args:
            logits: [T, B, P] float32.
            action: [T, B, *action].
            behaviour: arrays [T, B, ...] of the samples.
        """

    def entropy(self, logits: Tensor) -> Tensor:
        """Return the entropies [T, B], in nats.

        Args:
            logits: [T, B, P] float32.
        """


class Categorical(Distribution):
    """One of A actions, by a softmax."""

    noise_columns = 1

    def __init__(self, actions: int) -> None:
        self.parameters = actions
        self.behaviour: dict[str, ArraySpec] = {}

    @override
    def sample(self, logits: Tensor, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return sample_action(logits, noise[:, 0]), {}

    @override
    def mode(self, logits: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return ops.cast(ops.argmax(logits, axis=-1), "int32"), {}

    @override
    def log_prob(self, logits: Tensor, action: Tensor, behaviour: dict[str, Tensor]) -> Tensor:
        one_hot = ops.one_hot(action, logits.shape[-1], dtype="float32")
        return ops.sum(ops.log_softmax(logits, axis=-1) * one_hot, axis=-1)

    @override
    def entropy(self, logits: Tensor) -> Tensor:
        log_policy = ops.log_softmax(logits, axis=-1)
        return -ops.sum(ops.exp(log_policy) * log_policy, axis=-1)


class MultiCategorical(Distribution):
    """One choice of each of several, independent given the observation.

    Args:
        sizes: number of choices of each part.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.parameters, self.noise_columns = sum(sizes), len(sizes)
        self.behaviour: dict[str, ArraySpec] = {}
        self._parts = [Categorical(n) for n in sizes]
        stops = np.cumsum(sizes).tolist()
        self._slices = [slice(stop - n, stop) for n, stop in zip(sizes, stops, strict=True)]

    def _each(self, logits: Tensor) -> list[tuple[int, Categorical, Tensor]]:
        pairs = zip(self._parts, self._slices, strict=True)
        return [(i, part, logits[..., place]) for i, (part, place) in enumerate(pairs)]

    @override
    def sample(self, logits: Tensor, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        chosen = [part.sample(own, noise[:, i : i + 1])[0] for i, part, own in self._each(logits)]
        return ops.stack(chosen, axis=-1), {}

    @override
    def mode(self, logits: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return ops.stack([part.mode(own)[0] for _, part, own in self._each(logits)], axis=-1), {}

    @override
    def log_prob(self, logits: Tensor, action: Tensor, behaviour: dict[str, Tensor]) -> Tensor:
        each = self._each(logits)
        return sum(part.log_prob(own, action[..., i], {}) for i, part, own in each)

    @override
    def entropy(self, logits: Tensor) -> Tensor:
        return sum(part.entropy(own) for _, part, own in self._each(logits))


class Gaussian(Distribution):
    """Independent normal numbers, which are clipped to [-1, 1], or squashed by tanh.

    The logits are D means, then D logarithms of standard deviations. Probabilities are those of the
    normal number, which `behaviour` keeps: ratios of two policies are the same before and after
    both maps. The entropy is the normal one, too.

    Args:
        dimensions: D.
        squash: by tanh (Haarnoja et al. 2018, arXiv:1801.01290, appendix C).
    """

    def __init__(self, dimensions: int, squash: bool = False) -> None:
        self.parameters, self.noise_columns = 2 * dimensions, dimensions
        self.behaviour = {"normal": ArraySpec((dimensions,), "float32")}
        self._dimensions, self._squash = dimensions, squash

    def _split(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and logarithms of standard deviations [..., D]."""
        mean, log_std = logits[..., : self._dimensions], logits[..., self._dimensions :]
        return mean, ops.clip(log_std, *_LOG_STD)

    def _action(self, normal: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        action = ops.tanh(normal) if self._squash else ops.clip(normal, -1.0, 1.0)
        return action, {"normal": normal}

    @override
    def sample(self, logits: Tensor, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        mean, log_std = self._split(logits)
        uniform = ops.clip(noise, _SMALLEST, 1.0 - _SMALLEST)
        standard = sqrt(2.0) * ops.erfinv(2.0 * uniform - 1.0)
        return self._action(mean + ops.exp(log_std) * standard)

    @override
    def mode(self, logits: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return self._action(self._split(logits)[0])

    @override
    def log_prob(self, logits: Tensor, action: Tensor, behaviour: dict[str, Tensor]) -> Tensor:
        mean, log_std = self._split(logits)
        standard = (behaviour["normal"] - mean) * ops.exp(-log_std)
        return ops.sum(-0.5 * ops.square(standard) - log_std - 0.5 * log(2 * pi), axis=-1)

    @override
    def entropy(self, logits: Tensor) -> Tensor:
        _, log_std = self._split(logits)
        return ops.sum(log_std + 0.5 * log(2 * pi) + 0.5, axis=-1)


def make_distribution(action: ActionSpec, squash: bool = False) -> Distribution:
    """Return the distribution over the actions of a space.

    Args:
        action: the action space.
        squash: squash continuous actions by tanh; otherwise they are clipped.
    """
    if action.kind == "continuous":
        return Gaussian(prod(action.sizes), squash)
    if action.kind == "multi_discrete":
        return MultiCategorical(action.sizes)
    return Categorical(action.width)


def sample_action(logits: Tensor, uniform: Tensor) -> Tensor:
    """Sample actions by the inverse of the cumulative distribution.

    Args:
        logits: [N, A] float32.
        uniform: [N] float32 in [0, 1).

    Returns:
        [N] int32.
    """
    cumulative = ops.cumsum(ops.softmax(logits, axis=-1), axis=-1)  # [N, A]
    # The last sum is 1 up to rounding. Scaled by it, no number below 1 lies beyond the last action.
    point = ops.expand_dims(uniform, -1) * cumulative[:, -1:]
    action = ops.sum(ops.cast(point >= cumulative, "int32"), axis=-1)
    # A number that float32 rounds up to 1 lies beyond it.
    return ops.minimum(action, logits.shape[-1] - 1)
