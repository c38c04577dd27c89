"""A vector environment whose observations describe its history, so that tests can check steps."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from seedbed.spec import ArraySpec, EnvironmentSpec, TimeStep

NAME = "tests:pattern"
ACTIONS = 5


class PatternVectorEnv:
    """Episodes end, are cut and restart at random; everything else follows from the history.

    Each observation begins with four numbers: the environment's number, a step counter that goes
    on over episodes (modulo 200), the action that led here (0 on first rows), and the episode's
    number (modulo 200). The rest is noise. The reward is the action plus a hundredth of the
    counter.
    """

    failures: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self, num_envs: int, number: int, shape: tuple[int, ...], dtype: str, visit: int = 0
    ) -> None:
        self.num_envs = num_envs
        self.spec = EnvironmentSpec(NAME, ArraySpec(shape, dtype), ACTIONS, action_repeat=2)
        self._random = np.random.default_rng((number, visit))
        self._numbers = number + np.arange(num_envs)
        self._counter = np.zeros(num_envs, np.int64)
        self._episode = np.zeros(num_envs, np.int64)
        self._ended = np.zeros(num_envs, bool)

    def reset(self) -> TimeStep:
        """Every row is first."""
        self._episode += 1
        self._ended[:] = False
        return self._frame(np.zeros(self.num_envs, np.int32), np.ones(self.num_envs, bool))

    def step(self, action: NDArray[np.int32]) -> TimeStep:
        """Rows after a finished one are first; now and then one is so without."""
        assert action.shape == (self.num_envs,)
        assert ((action >= 0) & (action < ACTIONS)).all()
        crashed = self._random.random(self.num_envs) < 0.03
        first = self._ended | crashed
        self._episode += first
        self._counter += 1
        return self._frame(np.where(first, 0, action), first)

    def close(self) -> None:
        """Nothing to give back."""

    def _frame(self, action: NDArray[np.int32], first: NDArray[np.bool_]) -> TimeStep:
        e, spec = self.num_envs, self.spec.observation
        chance = np.where(first, 1.0, self._random.random(e))
        terminated = chance < 0.06
        truncated = (chance >= 0.06) & (chance < 0.12)
        self._ended = terminated | truncated
        noise = self._random.integers(0, 256, (e, *spec.shape))
        observation = noise.astype(spec.dtype)
        if spec.dtype != "uint8":
            observation = (observation / 255).astype(spec.dtype)
        flat = observation.reshape(e, -1)
        flat[:, 0], flat[:, 1] = self._numbers, self._counter % 200
        flat[:, 2], flat[:, 3] = action, self._episode % 200
        reward = action + 0.01 * (self._counter % 200)
        return TimeStep(
            observation=observation,
            reward=np.where(first, 0, reward).astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            life_lost=~first & (self._random.random(e) < 0.1),
            first=first,
        )
