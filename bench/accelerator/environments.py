"""Environments that cost next to nothing: what remains is the learner's and the wire's."""

from functools import cache
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

EPISODE = 1_000  # steps


@cache
def _rows(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Return the observations that all environments of a process show in turn: fixed noise."""
    random = np.random.default_rng(0)
    if dtype == "uint8":
        return random.integers(0, 256, (16, *shape), np.uint8)
    return random.standard_normal((1024, *shape), np.float32)


class _Null(gymnasium.Env[Any, Any]):
    """Shows fixed rows in turn, whatever is done; the reward is 1 for one action of each row.

    Args:
        space: Of the observations.
        actions: Number of actions.
        action_repeat: Frames that a step counts as.
    """

    def __init__(self, space: Box, actions: int, action_repeat: int) -> None:
        self.observation_space, self.action_space = space, Discrete(actions)
        self.action_repeat = action_repeat
        self._observations = _rows(space.shape, str(space.dtype))
        self._actions, self._at, self._end = actions, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._at = seed % 10_007
        self._end = self._at + EPISODE
        return self._observations[self._at % len(self._observations)], {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 1.0 if action == self._at % self._actions else 0.0
        self._at += 1
        row = self._observations[self._at % len(self._observations)]
        return row, reward, self._at >= self._end, False, {}


class NullAtari(_Null):
    """Frames and actions of Atari, 4 emulator frames a step."""

    def __init__(self) -> None:
        super().__init__(Box(0, 255, (84, 84, 1), np.uint8), 18, 4)


class NullMelee(_Null):
    """States of 27 floats, as those of "Deep In-GPU Experience Replay", section 4; 30 actions."""

    def __init__(self) -> None:
        super().__init__(Box(-np.inf, np.inf, (27,), np.float32), 30, 1)
