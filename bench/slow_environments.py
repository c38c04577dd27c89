"""Environments that take long, with observations of the size of Atari's."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from seedbed.config.environment import Environment
from seedbed.envs.atari_exact import ExactAtariVectorEnv

STEP_S = 0.002
EXACT_PONG: dict[str, Any] = {"id": "atari:Pong", "atari": {"preprocessing": "exact"}}

Reset = tuple[Any, dict[str, Any]]
Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Sleeps(gymnasium.Env[Any, Any]):
    """Each step waits, as for a simulator elsewhere."""

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (84, 84, 1), np.uint8)
        self.action_space = Discrete(4)
        self._frame = np.zeros((84, 84, 1), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Reset:
        super().reset(seed=seed)
        return self._frame, {}

    def step(self, action: int) -> Step:
        self._take()
        return self._frame, 0.0, False, False, {}

    def _take(self) -> None:
        time.sleep(STEP_S)


class HoldsTheLock(Sleeps):
    """Each step is Python, which holds the interpreter lock."""

    def _take(self) -> None:
        end = time.thread_time() + STEP_S
        while time.thread_time() < end:
            pass


class ExactPong(gymnasium.Env[Any, Any]):
    """`atari:Pong`, exact, as an environment of Gymnasium."""

    def __init__(self) -> None:
        environment = Environment.model_validate(EXACT_PONG)
        self._game = ExactAtariVectorEnv(environment, [0])
        self.observation_space = Box(0, 255, self._game.spec.observation.shape, np.uint8)
        self.action_space = Discrete(self._game.spec.actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Reset:
        return self._game.reset().observation[0], {}

    def step(self, action: int) -> Step:
        row = self._game.step(np.array([action], np.int32))
        return (
            row.observation[0], float(row.reward[0]), bool(row.terminated[0]),
            bool(row.truncated[0]), {},
        )  # fmt: skip

    def close(self) -> None:
        self._game.close()
