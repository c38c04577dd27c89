"""Agent of an experiment. Call `seedbed.backends.use` before the import."""

import inspect
import random
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from seedbed.agents import AGENTS
from seedbed.agents.protocol import Agent, OnPolicyAgent, ReplayAgent
from seedbed.config.schema import Experiment
from seedbed.networks.initializers import draw_orthogonal
from seedbed.networks.registry import load_class, make_body
from seedbed.runtime.exit_codes import ConfigError
from seedbed.spec import EnvironmentSpec


def build_agent(experiment: Experiment, spec: EnvironmentSpec) -> Agent:
    """Return the experiment's agent with its initial weights, which depend on `seed` alone.

    Raises:
        SeedbedError: CONFIG: the agent, the network or their options are wrong, or do not fit the
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
        spec.action,
        learner.frame_stack,
        learner.lstm_units,
        learner.precision,
        experiment.initial_weights,
        experiment.normalization_frames > 0,
    )
    agent: Agent = agent_class(options, body, spec.actions)
    if experiment.initial_weights == "orthogonal":
        draw_orthogonal(agent.model)
    return agent


def agent_and_options(experiment: Experiment) -> tuple[Any, BaseModel]:
    """Return the class of `agent` and its validated options.

    Raises:
        SeedbedError: CONFIG: the class cannot be loaded, or its options are wrong.
    """
    name = experiment.agent
    agent_class = load_class(AGENTS.get(name, name), "agent")
    if experiment.builtin_options is not None:
        return agent_class, experiment.builtin_options
    options = getattr(agent_class, "Options", None)
    if not (inspect.isclass(options) and issubclass(options, BaseModel)):
        raise ConfigError(f"agent {name!r} has no Options, a pydantic model of its hyperparameters")
    try:
        return _with_defaults(agent_class), options.model_validate(experiment.agent_options)
    except ValidationError as error:
        lines = [
            f"agent_options.{'.'.join(map(str, item['loc']))}: {item['msg']}, given "
            f"{item['input']!r}"
            for item in error.errors(include_url=False)
        ]
        raise ConfigError("\n".join(lines)) from error


def _with_defaults(agent_class: Any) -> Any:
    """Return a user's class with the attributes of `Agent` that it leaves out."""
    if hasattr(agent_class, "trains_from_replay"):
        return agent_class
    base: Any = ReplayAgent if hasattr(agent_class, "initial_priority") else OnPolicyAgent
    return type(base)(agent_class.__name__, (agent_class, base), {"__doc__": agent_class.__doc__})
