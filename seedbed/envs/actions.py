"""Validation of actions, before every step of a vector environment."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_actions(action: NDArray[Any], num_envs: int, actions: int) -> None:
    """Check actions, because a single bad one makes `AtariVectorEnv` hang for ever.

    Args:
        action: should be [E] integers in 0 .. actions-1.
        num_envs: E.
        actions: number of actions.

    Raises:
        ValueError: with the environment, the action and the limit.
    """
    if action.shape != (num_envs,) or action.dtype.kind not in "iu":
        raise ValueError(
            f"actions are {action.dtype}{list(action.shape)}, but a group of {num_envs} "
            f"environments takes int32[{num_envs}]"
        )
    # Two reductions of E numbers take a few microseconds. The search follows only after a failure.
    if action.min() < 0 or action.max() >= actions:
        i = int(np.flatnonzero((action < 0) | (action >= actions))[0])
        raise ValueError(
            f"action {int(action[i])} for environment {i} is out of range: "
            f"it takes 0 .. {actions - 1}"
        )
