"""Environments of the benchmark: one that can be slow, and a small Atari-like game."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

CELLS, CELL = 8, 3
SIZE = CELLS * CELL


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sleeps at every step of an environment of Gymnasium, as a simulator that computes elsewhere.

    Args:
        id: Of the environment.
        sleep_s: Time that a step takes longer, in seconds.
    """

    def __init__(self, id: str, sleep_s: float) -> None:
        super().__init__(gymnasium.make(id))
        self._sleep_s = sleep_s

    def step(self, action: Any) -> Any:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        return super().step(action)


class Catch(gymnasium.Env[Any, Any]):
    """A ball falls, and a paddle moves below it (bsuite's game, as pixels).

    Observation: [24, 24, 1] uint8. Actions: left, stay, right. Reward: 1 or -1 at the end.
    """

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (SIZE, SIZE, 1), np.uint8)
        self.action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.row = 0
        self.column, self.paddle = (int(x) for x in self.np_random.integers(CELLS, size=2))
        return self._see(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.paddle = int(np.clip(self.paddle + action - 1, 0, CELLS - 1))
        self.row += 1
        over = self.row == CELLS - 1
        reward = (1.0 if abs(self.paddle - self.column) <= 1 else -1.0) if over else 0.0
        return self._see(), reward, over, False, {}

    def _see(self) -> Any:
        image = np.full((SIZE, SIZE, 1), 87, np.uint8)
        row, column = self.row * CELL, self.column * CELL
        image[row : row + CELL, column : column + CELL] = 236
        image[-CELL:, max(self.paddle - 1, 0) * CELL : (self.paddle + 2) * CELL] = 160
        return image
