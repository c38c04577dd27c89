"""Factory of Gymnasium environments, and the check of their spaces."""

import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from seedbed.config.environment import Environment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ArraySpec, EnvironmentSpec

Env = gymnasium.Env[Any, Any]


def make_environment(environment: Environment) -> Env:
    """Make one environment.

    An `environment.id` of `module:name`, with a Python name after the colon, is called with
    `environment.kwargs`. Every other id is passed to `gymnasium.make`, even `module:Name-v0`.

    Raises:
        SeedbedError: there is no such module or factory, the factory raised, or its result is no
            environment.
    """
    module, colon, name = environment.id.partition(":")
    if colon and all(part.isidentifier() for part in name.split(".")):
        factory: Callable[..., Any] = _find(environment.id, module, name)
    else:
        # Without the passive checker, which costs time at every step.
        factory = partial(gymnasium.make, environment.id, disable_env_checker=True)
    try:
        made = factory(**environment.kwargs)
    except Exception as error:
        # The user's code may raise anything.
        given = f" with environment.kwargs {environment.kwargs}" if environment.kwargs else ""
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {environment.id!r} cannot be made{given}: "
            f"{type(error).__name__}: {error}{_hint(environment.id, error)}",
        ) from error
    if not isinstance(made, gymnasium.Env):
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {environment.id!r} returned {_kind(made)}, not a gymnasium.Env: "
            "return a single environment with the API of Gymnasium 1 "
            "(reset -> observation, info; step -> five values)",
        )
    return made


def _hint(env_id: str, error: Exception) -> str:
    """Return what Gymnasium's own words leave out."""
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        return f" (the pip of this Python is `{sys.executable} -m pip`)"
    unknown = (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound)
    if isinstance(error, unknown) and ":" not in env_id and "Did you mean" not in str(error):
        return (
            f"; an environment of a package is named with the module, such as `minigrid:{env_id}`"
        )
    return ""


def read_spec(environment: Environment, made: Env) -> EnvironmentSpec:
    """Read the spec of an environment.

    The observation space must be a Box. Observations of uint8 and bool are sent as uint8, all
    others as float32. The action space must be Discrete, with any start.

    Args:
        environment: the experiment's section.
        made: an environment of that section.

    Raises:
        SeedbedError: a space is not supported; with the space and what to do.
    """
    observation, action = made.observation_space, made.action_space

    def refused(text: str, wrapper: str = "", example: str = "") -> SeedbedError:
        if wrapper:
            text += (
                f": wrap the environment (gymnasium.{wrapper}Wrapper) in a `module:factory` and "
            )
            text += f"name that{example}"
        return SeedbedError(ExitCode.ENVIRONMENT, f"{environment.id}: {text}")

    if not isinstance(observation, Box):
        text = f"the observation space is {observation}, but only one Box is supported"
        discrete = isinstance(observation, Discrete)
        example = ", for example one that returns a one-hot vector" if discrete else ""
        if isinstance(observation, Dict | Tuple):
            raise refused(
                f"{text}: name a `module:factory` that wraps the environment in "
                "gymnasium.wrappers.FlattenObservation, or picks one entry"
            )
        raise refused(text, "Observation", example)
    if not isinstance(action, Discrete):
        raise refused(
            f"the action space is {action}, but only Discrete is supported: the agents choose one "
            "of several actions, and continuous or combined actions are not there yet"
        )
    shape = observation.shape
    if observation.dtype.kind not in "biuf":
        raise refused(
            f"the observation space is {observation} of dtype {observation.dtype}, but only bool, "
            "integers and floats are supported",
            "Observation",
        )
    if not 1 <= len(shape) <= 3:
        text = (
            f"the observation's shape {list(shape)} has {len(shape)} axes, but 1 to 3 are supported"
        )
        raise refused(text, "Observation")
    if 0 in shape:
        raise refused(f"the observation's shape {list(shape)} holds no number")
    try:
        repeat = made.get_wrapper_attr("action_repeat")
    except AttributeError:
        repeat = 1
    if not isinstance(repeat, int | np.integer) or repeat < 1:
        raise refused(f"its action_repeat is {repeat!r}, but must be an integer from 1 on")
    wire = "uint8" if observation.dtype in (np.uint8, np.bool_) else "float32"
    frame = ArraySpec(tuple(shape), wire)
    return EnvironmentSpec(environment.id, frame, int(action.n), int(repeat))


def _find(identifier: str, module: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {identifier!r}: importing {module!r} failed: {error}; is it "
            "installed, or its folder on PYTHONPATH?",
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise SeedbedError(
                ExitCode.ENVIRONMENT, f"environment.id {identifier!r}: {module!r} has no {name!r}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {identifier!r} is {_kind(found)}, which cannot be called: name a "
            "function that returns a gymnasium.Env, or a class of one",
        )
    return found


def _kind(thing: object) -> str:
    return f"a {type(thing).__module__}.{type(thing).__qualname__}"
