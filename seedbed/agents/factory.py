"""From an experiment to its agent and optimizer. `backend.use` comes first."""

from __future__ import annotations

import inspect
import math
import random
from typing import Any

import keras
import numpy as np
from pydantic import BaseModel, ValidationError

from seedbed.agents.a2c.agent import A2cAgent
from seedbed.agents.dqn.agent import DqnAgent
from seedbed.agents.protocol import Agent
from seedbed.agents.r2d2.agent import R2d2Agent
from seedbed.agents.vtrace.agent import VtraceAgent
from seedbed.config.schema import Experiment
from seedbed.networks.registry import load_class, make_body
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import EnvironmentSpec

AGENTS: dict[str, type[Agent]] = {
    "a2c": A2cAgent,
    "dqn": DqnAgent,
    "r2d2": R2d2Agent,
    "vtrace": VtraceAgent,
}


def build_agent(experiment: Experiment, spec: EnvironmentSpec) -> Agent:
    """The agent with its initial weights, which depend on `seed` alone.

    Raises:
        SeedbedError: the agent, the network or their options are wrong, or do not fit the
            environment.
    """
    agent_class, options = agent_and_options(experiment)
    # Not keras.utils.set_random_seed: it imports TensorFlow wherever it is installed.
    random.seed(experiment.seed)
    np.random.seed(experiment.seed)
    learner = experiment.learner
    body = make_body(
        learner.network,
        learner.network_options,
        spec.observation,
        spec.actions,
        learner.frame_stack,
        learner.lstm_units,
    )
    agent: Agent = agent_class(options, body, spec.actions)
    return agent


def agent_and_options(experiment: Experiment) -> tuple[Any, BaseModel]:
    """The class of `agent` and its validated options.

    Raises:
        SeedbedError: CONFIG, what is wrong with them.
    """
    name = experiment.agent
    if name in AGENTS:
        return AGENTS[name], getattr(experiment, name)
    agent_class = load_class(name, "agent")
    options = getattr(agent_class, "Options", None)
    if not (inspect.isclass(options) and issubclass(options, BaseModel)):
        raise SeedbedError(
            ExitCode.CONFIG,
            f"agent {name!r} has no Options, a pydantic model of its hyperparameters",
        )
    try:
        return agent_class, options.model_validate(experiment.agent_options)
    except ValidationError as error:
        lines = [
            f"agent_options.{'.'.join(map(str, item['loc']))}: {item['msg']}, given "
            f"{item['input']!r}"
            for item in error.errors(include_url=False)
        ]
        raise SeedbedError(ExitCode.CONFIG, "\n".join(lines)) from error


def build_optimizer(
    experiment: Experiment, env_frames_per_update: float
) -> keras.optimizers.Optimizer:
    """The optimizer of `learner.optimizer`.

    Args:
        experiment: the experiment.
        env_frames_per_update: emulator frames of a training batch, T * B * action_repeat, by
            the updates that it makes. The schedule counts frames as updates times this.
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
    if settings.name == "adam":
        return keras.optimizers.Adam(
            rate,
            beta_1=settings.beta_1,
            beta_2=settings.beta_2,
            epsilon=settings.epsilon,
            name="adam",
        )
    return keras.optimizers.RMSprop(
        rate,
        rho=settings.decay,
        momentum=settings.momentum,
        epsilon=settings.epsilon,
        name="rmsprop",
    )


def learning_rate_scale(experiment: Experiment) -> float:
    """The factor of the learning rate for the size of a batch: √(environments / nominal), or 1.

    Gradients of k times the environments have √k times less noise; see Stooke and Abbeel 2018,
    who scale the rate of RMSProp and Adam so. Several learners count together, as their updates are
    averaged, by all-reduce at once and by gossip over time (Assran et al. 2019 train 4 learners of
    16 at √4 · 7e-4).
    """
    nominal = experiment.learner.optimizer.nominal_envs
    if not nominal:
        return 1.0
    return math.sqrt(experiment.learner.batch_size * experiment.gossip.replicas / nominal)
