"""The judge of what an environment returns: each value is taken as it is, or refused by name.

Everything that steps an environment of Gymnasium's API asks here: actors, workers, the probe,
evaluations, `make_env`, deterministic training and `seedbed check env`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.envs.failures import NOT_FINITE, WRONG_SHAPE, EnvironmentFault

_REWARD_LIMIT = float(np.finfo(np.float32).max)
_STEP = "observation, reward, terminated, truncated, info"
_SHOWN = 80  # characters of a value
DEFAULT_FPS = 30.0


def judge_reset(values: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the observation and the info of a `reset`.

    Raises:
        EnvironmentFault: it returned something else.
    """
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise EnvironmentFault(
            WRONG_SHAPE,
            f"reset returned {described(values)}, not (observation, info), as Gymnasium's API has "
            "it since 0.26",
        )
    observation, info = values
    return observation, _info(info, "reset")


def judge_step(values: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
    """Return the five values of a `step`: the reward as a float, the flags as bools.

    Raises:
        EnvironmentFault: it returned something else, or a value is not of its kind.
    """
    if not isinstance(values, tuple | list) or len(values) != 5:
        count = f"{len(values)} values" if isinstance(values, tuple | list) else described(values)
        raise EnvironmentFault(
            WRONG_SHAPE, f"step returned {count}, not the five of Gymnasium: {_STEP}"
        )
    observation, reward, terminated, truncated, info = values
    return (
        observation,
        _reward(reward),
        _flag(terminated, "terminated"),
        _flag(truncated, "truncated"),
        _info(info, "step"),
    )


def judge_lives(info: Mapping[str, Any], needed: bool) -> int | None:
    """Return `info["lives"]`; None where there is none, or where it is the environment's own.

    Args:
        info: returned by a reset or a step.
        needed: the setting life_loss_ends reads it.

    Raises:
        EnvironmentFault: it is needed, and no whole number.
    """
    lives = info.get("lives")
    if lives is None or type(lives) is int:
        return lives
    number = _number(lives)
    if number is None or number.dtype.kind not in "iu":
        if not needed:
            return None
        raise EnvironmentFault(
            WRONG_SHAPE,
            f'info["lives"] is {described(lives)}, and life_loss_ends reads a whole number: set '
            "life_loss_ends to false, or give the number of lives",
        )
    return int(number.item())


def judge_picture(picture: Any) -> NDArray[np.uint8]:
    """Return the picture of a `render`, [H, W, 3] uint8.

    Raises:
        EnvironmentFault: it is no such picture.
    """
    array = np.asarray(picture)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[-1] != 3 or 0 in array.shape:
        raise EnvironmentFault(
            WRONG_SHAPE,
            f"render() returned {described(picture)}, not uint8[H, W, 3]: it must support "
            'render_mode="rgb_array"',
        )
    return array


def judge_fps(metadata: Any) -> float:
    """Return the pictures of a second, of the metadata; 30 where it has no usable number."""
    try:
        rate = float(metadata["render_fps"])
    except (TypeError, KeyError, ValueError, IndexError):
        return DEFAULT_FPS
    return rate if 0 < rate < 1000 else DEFAULT_FPS


def is_masked(value: Any) -> bool:
    """Return whether a value is an array with a masked number, which is none."""
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any())


def judge_render_modes(metadata: Any) -> list[str]:
    """Return the render modes that the metadata names; none where it is of another form."""
    try:
        modes = metadata["render_modes"]
    except (TypeError, KeyError, IndexError):
        return []
    return (
        [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, list | tuple) else []
    )


def described(value: Any) -> str:
    """Describe a value in bounded words: its dtype and shape, or its type and itself."""
    if is_masked(value):
        return f"{value.dtype}{list(value.shape)} with masked numbers"
    if isinstance(value, np.ndarray | np.generic):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, tuple | list):
        kind = type(value).__name__
        return f"a {kind} of {len(value)}" if len(value) > 2 else f"{kind} {_bounded(value)}"
    return f"{type(value).__name__} {_bounded(value)}"


def _bounded(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _info(info: Any, call: str) -> Mapping[str, Any]:
    if not isinstance(info, Mapping):
        raise EnvironmentFault(
            WRONG_SHAPE, f"the info of {call} is {described(info)}, not a dictionary"
        )
    return info


def _reward(value: Any) -> float:
    reward = value
    if type(value) is not float:
        number = _number(value)
        if number is None or number.dtype.kind not in "biuf":
            raise EnvironmentFault(
                WRONG_SHAPE, f"the reward is {described(value)}, not a single number"
            )
        reward = float(number.item())
    # Written so that NaN does not pass.
    if not abs(reward) <= _REWARD_LIMIT:
        raise EnvironmentFault(NOT_FINITE, f"the reward is {reward}, which is no finite float32")
    return float(reward)


def _flag(value: Any, name: str) -> bool:
    if value is True or value is False:
        return bool(value)
    number = _number(value)
    is_flag = number is not None and (
        number.dtype.kind == "b" or (number.dtype.kind in "iu" and number.item() in (0, 1))
    )
    if number is None or not is_flag:
        raise EnvironmentFault(WRONG_SHAPE, f"{name} is {described(value)}, not true or false")
    return bool(number.item())


def _number(value: Any) -> NDArray[Any] | None:
    """Return a value that is one number, or an array of one; None of any other."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    if is_masked(value):
        return None
    return array if array.size == 1 else None
