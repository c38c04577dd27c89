"""The check that every group makes before it steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_actions(action: NDArray[Any], num_envs: int, actions: int) -> None:
    """Refuse what an environment must never see: one bad action hangs `AtariVectorEnv` for ever.

    Args:
        action: what should be [E] integers in 0 .. actions-1.
        environments: E.
        actions: A.

    Raises:
        ValueError: naming the environment's row, the value and the limit.
    """
    if action.shape != (num_envs,) or action.dtype.kind not in "iu":
        raise ValueError(
            f"actions are {action.dtype}{list(action.shape)}, but a group of {num_envs} "
            f"environments takes int32[{num_envs}]"
        )
    # Two reductions on E numbers, a few microseconds; the row is looked for only when it is wrong.
    if action.min() < 0 or action.max() >= actions:
        row = int(np.flatnonzero((action < 0) | (action >= actions))[0])
        raise ValueError(
            f"action {int(action[row])} for environment {row} is out of range: "
            f"it takes 0 .. {actions - 1}"
        )
