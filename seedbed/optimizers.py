"""Optimizers. Call `seedbed.backends.use` before the import."""

import math
from typing import Any

import keras
from keras import ops
from typing_extensions import override

from seedbed.config.schema import Experiment
from seedbed.types import Tensor


class PyTorchRMSprop(keras.optimizers.RMSprop):
    """RMSProp that adds ε to the root of the mean square, as PyTorch does.

    v ← ρ v + (1 - ρ) g², and g / (√v + ε) where Keras and TensorFlow have g / √(v + ε). With
    ε = 1e-5 the smallest denominator is 1e-5 here, and 3.2e-3 there. v is 0 at the start in both.
    """

    @override
    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        square = self._velocities[index]
        self.assign(square, self.rho * square + (1.0 - self.rho) * ops.square(gradient))
        change = rate * gradient / (ops.sqrt(square) + self.epsilon)
        if self.momentum > 0:
            velocity = self._momentums[index]
            self.assign(velocity, self.momentum * velocity + change)
            change = velocity
        self.assign_sub(variable, change)


def build_optimizer(
    experiment: Experiment, env_frames_per_update: float
) -> keras.optimizers.Optimizer:
    """Return the optimizer of `learner.optimizer`.

    Args:
        experiment: the experiment.
        env_frames_per_update: emulator frames of a training batch, T * B * action_repeat, divided
            by the updates made with it. The schedule counts frames as updates times this.
    """
    settings = experiment.learner.optimizer
    scale = learning_rate_scale(experiment)
    rate: float | keras.optimizers.schedules.LearningRateSchedule = scale * settings.learning_rate
    if settings.schedule == "linear":
        rate = keras.optimizers.schedules.PolynomialDecay(
            scale * settings.learning_rate,
            max(1, round(settings.decay_env_frames / env_frames_per_update)),
            scale * settings.final_learning_rate,
        )
    common = {"learning_rate": rate, "epsilon": settings.epsilon, "name": settings.name}
    if settings.name == "adam":
        return keras.optimizers.Adam(beta_1=settings.beta_1, beta_2=settings.beta_2, **common)
    has_outer_epsilon = settings.name == "rmsprop_pytorch"
    rmsprop = PyTorchRMSprop if has_outer_epsilon else keras.optimizers.RMSprop
    return rmsprop(rho=settings.decay, momentum=settings.momentum, **common)


def learning_rate_scale(experiment: Experiment) -> float:
    """Return the factor of the learning rate for a batch's size: √(environments / nominal), or 1.

    Gradients of k times the environments have √k times less noise; Stooke and Abbeel 2018
    (arXiv:1803.02811) scale the rate of RMSProp and Adam so. Several learners count together,
    because their updates are averaged, by all-reduce at once and by gossip over time (Assran et
    al. 2019 train 4 learners of 16 at √4 · 7e-4). Under hogwild each update has one learner's
    batch alone.
    """
    nominal = experiment.learner.optimizer.nominal_envs
    if not nominal:
        return 1.0
    environments = experiment.learner.batch_size * learners_per_update(experiment)
    return math.sqrt(environments / nominal)


def learners_per_update(experiment: Experiment) -> int:
    """Return the number of learners that bring in a batch for each update of an optimizer.

    Under hogwild the only optimizer makes an update of each batch.
    """
    gossip = experiment.gossip
    return 1 if gossip.topology == "hogwild" else gossip.replicas
