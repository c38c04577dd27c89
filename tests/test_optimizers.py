"""Optimizers against their formulas in float64, and their schedules."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest

from seedbed.config.load import parse_experiment
from seedbed.config.schema import Experiment
from seedbed.optimizers import build_optimizer

pytestmark = [pytest.mark.backends, pytest.mark.usefixtures("backend")]


def experiment(text: str) -> Experiment:
    return parse_experiment("name: a\nenvironment: {id: x}\n" + text)


def of(**settings: object) -> keras.optimizers.Optimizer:
    words = ", ".join(f"{name}: {value}" for name, value in settings.items())
    return build_optimizer(experiment(f"learner: {{network: mlp, optimizer: {{{words}}}}}"), 1)


def adam(gradients: list[float], rate: float, epsilon: float) -> float:
    """Kingma and Ba 2015, the form at the end of their section 2, with ε̂."""
    x = m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x -= rate * math.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (math.sqrt(v) + epsilon)
    return x


def rmsprop(gradients: list[float], rate: float, epsilon: float, inside: bool) -> float:
    x = v = velocity = 0.0
    for g in gradients:
        v = 0.7 * v + 0.3 * g * g
        velocity = 0.1 * velocity + rate * g / (
            math.sqrt(v + epsilon) if inside else math.sqrt(v) + epsilon
        )
        x -= velocity
    return x


@pytest.mark.parametrize("size", [1.0, 1e-4])  # the second is far below the root of ε
@pytest.mark.parametrize("name", ["adam", "rmsprop", "rmsprop_pytorch"])
def test_each_optimizer_is_its_formula(name: str, size: float) -> None:
    gradients = (size * np.random.default_rng(2).standard_normal(12)).astype(np.float32)
    optimizer = of(name=name, learning_rate=0.01, epsilon=1e-5, decay=0.7, momentum=0.1)
    variable = keras.Variable(np.zeros(1, np.float32))
    optimizer.build([variable])
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor([gradient])])
    wanted = (
        adam(gradients.tolist(), 0.01, 1e-5)
        if name == "adam"
        else rmsprop(gradients.tolist(), 0.01, 1e-5, inside=name == "rmsprop")
    )
    assert float(variable.numpy()[0]) == pytest.approx(wanted, rel=1e-4)


def rates(optimizer: keras.optimizers.Optimizer, updates: list[int]) -> list[float]:
    found = []
    for update in updates:
        optimizer.iterations.assign(update)
        found.append(float(optimizer.learning_rate))
    return found


def test_schedules() -> None:
    linear = experiment(
        "learner: {network: mlp, optimizer: {learning_rate: 0.1, schedule: linear, "
        "final_learning_rate: 0.02, decay_env_frames: 1000}}"
    )
    optimizer = build_optimizer(linear, env_frames_per_update=10)
    assert rates(optimizer, [0, 50, 100, 500]) == pytest.approx([0.1, 0.06, 0.02, 0.02])
    constant = experiment("learner: {network: mlp, optimizer: {learning_rate: 0.1}}")
    assert rates(build_optimizer(constant, 10), [0, 500]) == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize(
    ("learners", "factor"),
    [
        ("{}", 2.0),  # √(64 / 16)
        ("{replicas: 4, topology: gossip}", 4.0),  # 256 in all
        ("{replicas: 4, topology: allreduce}", 4.0),
        ("{replicas: 4, topology: hogwild}", 2.0),  # each update has one learner's batch
    ],
)
def test_learning_rates_grow_with_the_root_of_the_environments(
    learners: str, factor: float
) -> None:
    linear = experiment(
        "learner: {network: mlp, batch_size: 64, optimizer: {learning_rate: 0.1, schedule: linear, "
        "final_learning_rate: 0.02, decay_env_frames: 1000, nominal_envs: 16}}\n"
        f"gossip: {learners}"
    )
    wanted = [0.1 * factor, 0.06 * factor, 0.02 * factor]
    assert rates(build_optimizer(linear, 10), [0, 50, 100]) == pytest.approx(wanted)
    constant = experiment(
        "learner: {network: mlp, batch_size: 8, optimizer: {learning_rate: 7.0e-4, "
        "nominal_envs: 16}}"
    )
    assert rates(build_optimizer(constant, 10), [0]) == pytest.approx([7e-4 / 2**0.5])
