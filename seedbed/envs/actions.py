"""Validation of actions, before every step of a vector environment."""

from typing import Any

from numpy.typing import NDArray

from seedbed.spec import ActionSpec


def check_actions(action: NDArray[Any], num_envs: int, space: ActionSpec) -> None:
    """Check actions, because a single bad one makes `AtariVectorEnv` hang for ever.

    Args:
        action: should be [E, *action] of the space.
        num_envs: E.
        space: the action space.

    Raises:
        ValueError: with the environment, the action and the limit.
    """
    shape, kinds = (num_envs, *space.array.shape), "f" if space.kind == "continuous" else "iu"
    if action.shape != shape or action.dtype.kind not in kinds:
        raise ValueError(
            f"actions are {action.dtype}{list(action.shape)}, but a group of {num_envs} "
            f"environments takes {space.array.dtype}{list(shape)}"
        )
    if (wrong := space.wrong(action)) is not None:
        raise ValueError(wrong)
