"""Catch (Osband et al. 2020, bsuite), from pixels: a ball falls, a paddle moves below it."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

SIZE, CELL = 84, 4
CELLS = SIZE // CELL  # 21 rows and columns


class Catch(gymnasium.Env[Any, Any]):
    """An episode has 20 steps; its return is 1 where the paddle catches the ball, else -1.

    Observation: the screen, [84, 84, 1] uint8. Actions: left, stay, right.
    """

    def __init__(self) -> None:
        self.observation_space = Box(0, 255, (SIZE, SIZE, 1), np.uint8)
        self.action_space = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Place ball and paddle."""
        super().reset(seed=seed)
        self.row = 0
        self.column = int(self.np_random.integers(CELLS))
        self.paddle = int(self.np_random.integers(CELLS))
        return self._see(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move the paddle, and the ball down by one row."""
        self.paddle = int(np.clip(self.paddle + action - 1, 0, CELLS - 1))
        self.row += 1
        over = self.row == CELLS - 1
        reward = 0.0
        if over:
            reward = 1.0 if abs(self.paddle - self.column) <= 1 else -1.0
        return self._see(), reward, over, False, {}

    def _see(self) -> Any:
        image = np.full((SIZE, SIZE, 1), 87, np.uint8)
        image[
            self.row * CELL : (self.row + 1) * CELL, self.column * CELL : (self.column + 1) * CELL
        ] = 236
        left, right = max(self.paddle - 1, 0) * CELL, (self.paddle + 2) * CELL
        image[-CELL:, left:right] = 160
        return image
