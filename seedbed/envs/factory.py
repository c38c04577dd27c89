"""Factory of Gymnasium environments, and the check of their spaces."""

import importlib
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from seedbed.config.environment import Environment
from seedbed.envs.failures import in_words, raise_ours
from seedbed.envs.sent_signals import refuse_own_signals
from seedbed.envs.spaces import ActionWriter, ObservationReader, UnsupportedSpace
from seedbed.packed import ACTION_MASK, PackedSpec
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.signals import stop_signals_kept
from seedbed.spec import MAX_REPEAT, EnvironmentSpec

Env = gymnasium.Env[Any, Any]
# Families of ours that are Gymnasium environments: the module whose `make` makes one.
FAMILIES = {
    "football": "seedbed.envs.football",
    "lab": "seedbed.envs.lab",
    "vizdoom": "seedbed.envs.vizdoom",
}


@stop_signals_kept()
def make_environment(environment: Environment) -> Env:
    """Make one environment.

    An `environment.id` of `FAMILIES` is made by that module. One of `module:name`, with a Python
    name after the colon, is called with `environment.kwargs`. Every other id is passed to
    `gymnasium.make`, even `module:Name-v0`. A handler of a stop signal that it sets is put back,
    so that the process can still be stopped, and a signal that it sends to this process is refused.

    Raises:
        SeedbedError: there is no such module or factory, the factory raised, or its result is no
            environment.
    """
    refuse_own_signals()
    module, colon, name = environment.id.partition(":")
    factory: Callable[..., Any]
    if module in FAMILIES and colon:
        # Imported here, because an actor needs only the packages of its own environment.
        factory = partial(importlib.import_module(FAMILIES[module]).make, environment)
    elif colon and all(part.isidentifier() for part in name.split(".")):
        factory = _find(environment.id, module, name)
    else:
        # Without the passive checker, which costs time at every step.
        factory = partial(gymnasium.make, environment.id, disable_env_checker=True)
    try:
        made = factory(**environment.kwargs)
    except BaseException as error:
        raise_ours(error)
        given = f" with environment.kwargs {environment.kwargs}" if environment.kwargs else ""
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {environment.id!r} cannot be made{given}: "
            f"{in_words(error)}{_hint(environment.id, error)}",
        ) from error
    if not isinstance(made, gymnasium.Env):
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {environment.id!r} returned {_kind(made)}, not a gymnasium.Env: "
            "return a single environment with the API of Gymnasium 1 "
            "(reset -> observation, info; step -> five values)",
        )
    return made


def _hint(env_id: str, error: BaseException) -> str:
    """Return what Gymnasium's own words leave out."""
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        return f" (the pip of this Python is `{sys.executable} -m pip`)"
    if env_id.startswith("ALE/") or re.search(r"(NoFrameskip|Deterministic)-v\d$", env_id):
        game = re.sub(r"^ALE/|(-ram)?(NoFrameskip|Deterministic)?-v\d$", "", env_id)
        return (
            f"; an Atari game is `atari:{game}` (with the preprocessing of the papers), or "
            f"`ale_py:{env_id}` as Gymnasium registers it"
        )
    unknown = (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound)
    if not isinstance(error, unknown):
        return ""
    module, colon, _ = env_id.partition(":")
    if colon:
        return (
            f"; importing {module} registers no such id. Where a function of the package registers "
            "it, name a `module:factory` of your own that calls this function"
        )
    if "Did you mean" in str(error):
        return ""
    return f"; an environment of a package is named with the module, such as `minigrid:{env_id}`"


def read_spaces(
    environment: Environment, made: Env
) -> tuple[EnvironmentSpec, ObservationReader, ActionWriter]:
    """Read the spec of an environment, with the conversion of observations and actions.

    Observations of uint8 and bool are sent as uint8, those of other numbers as float32.

    Args:
        environment: the experiment's section.
        made: an environment of that section.

    Raises:
        SeedbedError: a space is not supported; with the space and what to do.
    """

    def refused(text: str) -> SeedbedError:
        return SeedbedError(ExitCode.ENVIRONMENT, f"{environment.id}: {text}")

    try:
        action = ActionWriter(_space(made, "action_space"))
        masks = action.spec.width if environment.action_mask else 0
        observation = ObservationReader(_space(made, "observation_space"), masks)
    except UnsupportedSpace as error:
        raise refused(str(error)) from error
    space, spec = action.spec, observation.spec
    if isinstance(spec, PackedSpec):
        for entry in spec.entries:
            fits = space.kind != "continuous" and entry.array.shape == (space.width,)
            if entry.name == ACTION_MASK and not fits:
                raise refused(
                    f"{ACTION_MASK} is {entry.array}, and the environment has {space}: a mask has "
                    "one number for each discrete action"
                )
    try:
        repeat = action_repeat(made)
    except UnsupportedSpace as error:
        raise refused(str(error)) from error
    other = None if space.kind == "discrete" else space
    read = EnvironmentSpec(environment.id, spec, space.width, int(repeat), other)
    return read, observation, action


def _space(made: Env, name: str) -> gymnasium.Space[Any]:
    """Return a space of an environment.

    Raises:
        UnsupportedSpace: there is none.
    """
    try:
        space = getattr(made, name)
    except BaseException as error:
        raise_ours(error)
        raise UnsupportedSpace(f"it has no {name}: {in_words(error)}") from error
    if not isinstance(space, gymnasium.Space):
        raise UnsupportedSpace(f"its {name} is {_kind(space)}, and no space of gymnasium.spaces")
    return space


# Attributes by which wrappers and emulators name how often they repeat an action.
_REPEATS = ("frame_skip", "frameskip", "_frame_skip", "_frameskip", "_skip", "num_repeats")
# Those that may as well mean something else, where they hold no number.
_MAYBE = ("skip", "repeat", "_repeat", "_action_repeat", "_amount")


def action_repeat(made: Env) -> int:
    """Return the emulator frames of a step: the product of all that repeats actions.

    An attribute `action_repeat` of the environment, or of a wrapper, is the whole product of what
    is below it. Gymnasium's own `frameskip` of a registered id, and wrappers that repeat, count.

    Raises:
        UnsupportedSpace: the number is none that is fixed; with what to do.
    """
    product, layer = 1, made
    while True:
        own = vars(layer).get("action_repeat", vars(type(layer)).get("action_repeat"))
        if own is not None:
            return product * _repeats("action_repeat", own)
        # A simulation's own number of substeps is named alike, and is no repetition of frames.
        is_emulator = hasattr(layer, "ale") or type(layer).__module__.startswith("vizdoom.")
        if isinstance(layer, gymnasium.Wrapper) or is_emulator:
            found = [(name, vars(layer)[name]) for name in _REPEATS if name in vars(layer)]
            found += [(n, x) for n in _MAYBE if type(x := vars(layer).get(n)) is int]
            product *= _repeats(*found[0]) if found else 1
        if not isinstance(layer, gymnasium.Wrapper):
            return product
        layer = layer.env


def _repeats(name: str, value: Any) -> int:
    is_count = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_count or not 1 <= value <= MAX_REPEAT:
        raise UnsupportedSpace(
            f"its {name} is {value!r}, but frames are counted with 1 to {MAX_REPEAT} a step: make "
            "it repeat a fixed number of times, or set the environment's attribute action_repeat"
        )
    return int(value)


def _find(identifier: str, module: str, name: str) -> Any:
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {identifier!r}: importing {module!r} failed: {error}; is it "
            "installed, or its folder on PYTHONPATH?",
        ) from error
    except BaseException as error:
        raise_ours(error)
        raise SeedbedError(
            ExitCode.ENVIRONMENT,
            f"environment.id {identifier!r}: importing {module!r} failed: {in_words(error)}",
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
